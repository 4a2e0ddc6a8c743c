"""The outbox: sends events about ended runs to webhooks, at least once, in order for each session.

No event is stored: it is derived from the record of its run. Stored, for each session and webhook, is the progress of
delivery: a paused session of the library's own, written before a run does its first step. Until that run ends, workers
poll; when it ends normally, delivery starts immediately. So an event survives every crash that its run survives, and a
receiver that does not respond never delays a run.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from ...codec import Json, encode
from ...errors import HelixError, SessionExists, SessionNotFound, StoreUnavailable, VersionConflict
from ...ids import RESERVED_PREFIX
from ...lifecycle import SUSPENDED
from ...retry import CONFLICT, DELIVERY
from ...safe_text import get_logger
from ...types import Owner, RunRecord, SessionState
from ..run.hooks import Hooks, RunInfo
from ..services import Services
from ..session.standing import open_run
from .webhooks import REQUEST_SECONDS, EventType, Post, Webhook, headers_of, post_in_thread

logger = get_logger("helix_agents.executor")

OUTBOX = f"{RESERVED_PREFIX}outbox"
"""Prefix of the ids and agent types of entries."""
WATCH_SECONDS = 60.0
"""How often workers check for a run that ended without being reported."""
CLAIM_SECONDS = 30.0
"""How long a worker claims an entry while it delivers; longer than one request takes."""
AT_ONCE = 16


class Entry(msgspec.Struct, frozen=True):
    """The progress of delivery: up to `run_id`, whose end was sent with status `sent` (None: not yet).

    `sending_until`: when the claim of the delivering worker expires.
    """

    session_id: str
    incarnation: str
    run_id: str
    sent: str | None = None
    attempts: int = 0
    sending_until: int = 0


class Outbox(Hooks):
    """Registers the runs of one executor for delivery, and delivers the events of all executors."""

    def __init__(self, services: Services, post: Post = post_in_thread) -> None:
        self._services = services
        self.post = post
        self._webhooks: dict[str, Webhook] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, webhooks: Iterable[Webhook]) -> None:
        """Also deliver to these webhooks."""
        self._webhooks.update({webhook.name: webhook for webhook in webhooks})

    @property
    def types(self) -> list[str]:
        """The agent types of entries that this process can deliver."""
        return [f"{OUTBOX}/{name}" for name in self._webhooks]

    async def run_started(self, run: RunInfo) -> None:
        """Store an entry for a run before it does anything, so that its end will be reported."""
        if run.parent_run_id is None and self._webhooks:
            session = await self._services.store.load_state(run.session_id)
            for name in self._webhooks if session is not None else ():
                await self._watch(name, session, run.run_id)

    async def run_ended(self, run: RunInfo, status: str, error: str | None) -> None:
        """Start delivery in the background, unless another process or step continues the run."""
        if run.parent_run_id is None and status != "active":
            for name in self._webhooks:
                self._spawn(self._deliver(name, _entry_id(name, run.session_id)))

    async def work(self, session: SessionState) -> bool:
        """Deliver the due events of an entry in the background; return False if the entry has to wait."""
        name = session.agent_type.removeprefix(f"{OUTBOX}/")
        if name not in self._webhooks or len(self._tasks) >= AT_ONCE:
            return False
        claimed = await self._claim(session.session_id)
        if claimed is not None:
            self._spawn(self._send_all(self._webhooks[name], *claimed))
        return claimed is not None

    async def forget(self, session_id: str) -> None:
        """Delete the entries of a deleted session."""
        for name in self._webhooks:
            await self._services.store.delete_session(_entry_id(name, session_id))

    async def settle(self) -> None:
        """Wait for the deliveries that have started here."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop delivering here; other processes continue."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, job: Any) -> None:
        task = asyncio.create_task(job, name="helix-outbox")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the entry

    async def _watch(self, name: str, session: SessionState | None, run_id: str) -> None:
        """Store an entry, so that workers check for the end of the run."""
        assert session is not None
        store, entry_id = self._services.store, _entry_id(name, session.session_id)
        for _ in CONFLICT.attempts():
            stored = await store.load_state(entry_id)
            if stored is not None and stored.status == "paused":
                entry = _entry_of(stored)
                if entry.incarnation != session.incarnation:
                    await store.delete_session(entry_id, owner=Owner(stored.incarnation))
                    continue
            else:
                entry = Entry(session.session_id, session.incarnation, run_id)
            try:
                if stored is None:
                    stored = await store.create_session(
                        entry_id, agent_type=f"{OUTBOX}/{name}", user_id=session.user_id
                    )
                # An entry that waits for a retry keeps its time. Writing the others again keeps them from becoming
                # idle.
                wake_at = stored.wake_at if entry.attempts else self._services.clock() + int(WATCH_SECONDS * 1000)
                await self._save(stored, entry, wake_at)
                return
            except (SessionExists, SessionNotFound, VersionConflict):
                continue
        raise StoreUnavailable(f"The outbox of session {session.session_id!r} changes too fast to be written.")

    async def _claim(self, entry_id: str) -> tuple[SessionState, Entry] | None:
        """Claim an entry for delivery; return None if another worker was faster or there is nothing to do."""
        stored = await self._services.store.load_state(entry_id)
        if stored is None or stored.status != "paused" or stored.wake_at is None:
            return None
        now, entry = self._services.clock(), _entry_of(stored)
        if entry.sending_until > now:
            return None
        claimed = msgspec.structs.replace(entry, sending_until=now + int(CLAIM_SECONDS * 1000))
        try:
            return await self._save(stored, claimed, claimed.sending_until), claimed
        except (SessionNotFound, VersionConflict):
            return None

    async def _save(self, stored: SessionState, entry: Entry, wake_at: int | None) -> SessionState:
        changed = msgspec.structs.replace(
            stored, status="paused", output=msgspec.to_builtins(entry), wake_at=wake_at, custom_state=None
        )
        version = await self._services.store.save_state(
            stored.session_id, changed, expected_version=stored.version, owner=Owner(stored.incarnation)
        )
        return msgspec.structs.replace(changed, version=version)

    # -- delivery

    async def _deliver(self, name: str, entry_id: str) -> None:
        with suppress(HelixError):  # a worker will find the entry
            if (claimed := await self._claim(entry_id)) is not None:
                await self._send_all(self._webhooks[name], *claimed)

    async def _send_all(self, webhook: Webhook, stored: SessionState, entry: Entry) -> None:
        """Send all unsent events in order, and store the progress."""
        try:
            while (found := await self._next(entry)) is not None:
                run, session = found
                if run is None or open_run(run) is not None:
                    idle = msgspec.structs.replace(entry, sending_until=0)
                    wake_at = None if run is None else self._services.clock() + int(WATCH_SECONDS * 1000)
                    try:
                        await self._save(stored, idle, wake_at)
                        return
                    except VersionConflict:
                        stored = await self._reloaded(stored, entry)  # a run has started since
                        continue
                event = event_of(session, run)
                if event is not None and event["type"] in webhook.events and not await self._sent(webhook, event, run):
                    again = Entry(entry.session_id, entry.incarnation, run.run_id, None, entry.attempts + 1)
                    await self._move(stored, entry, again, self._services.clock() + _pause_ms(again.attempts))
                    return
                until = self._services.clock() + int(CLAIM_SECONDS * 1000)
                sent = Entry(entry.session_id, entry.incarnation, run.run_id, run.status, sending_until=until)
                stored, entry = await self._move(stored, entry, sent, until), sent
            await self._services.store.delete_session(stored.session_id, owner=Owner(stored.incarnation))
        except (SessionNotFound, VersionConflict):
            return  # another worker delivers, or the session is gone
        except HelixError as error:
            logger.warning("Could not deliver events of session %s; workers will retry: %s", entry.session_id, error)

    async def _move(self, stored: SessionState, before: Entry, after: Entry, wake_at: int) -> SessionState:
        """Store progress, even if a run has started since. Raises `VersionConflict` if another worker delivers."""
        for _ in CONFLICT.attempts():
            try:
                return await self._save(stored, after, wake_at)
            except VersionConflict:
                stored = await self._reloaded(stored, before)
        raise StoreUnavailable(f"The outbox entry {stored.session_id!r} changes too fast to be written.")

    async def _reloaded(self, stored: SessionState, entry: Entry) -> SessionState:
        """Reload an entry that another process has written. Raises `VersionConflict` if its progress has changed."""
        found = await self._services.store.load_state(stored.session_id)
        if found is None or found.incarnation != stored.incarnation:
            raise SessionNotFound(stored.session_id)
        if _entry_of(found) != entry:
            raise VersionConflict(stored.version, found.version, found.status, stored.session_id)
        return found

    async def _next(self, entry: Entry) -> tuple[RunRecord | None, SessionState] | None:
        """Return the next run to report, if any, and its session; None if the session is gone."""
        session = await self._services.store.load_state(entry.session_id)
        if session is None or session.incarnation != entry.incarnation:
            return None
        runs = await self._services.store.list_runs(entry.session_id)
        position = next((n for n, run in enumerate(runs) if run.run_id == entry.run_id), len(runs) - 1)
        rest = runs[max(position, 0) :]
        if rest and rest[0].run_id == entry.run_id and rest[0].status == entry.sent:
            rest = rest[1:]
        return (rest[0] if rest else None), session

    async def _sent(self, webhook: Webhook, event: dict[str, Json], run: RunRecord) -> bool:
        """Send an event; return False if it has to be sent again."""
        now = self._services.clock()
        body = encode(event).encode("utf-8", "backslashreplace")
        try:
            headers = headers_of(webhook, str(event["id"]), now // 1000, body)
            status = await self.post(webhook.url, headers, body, REQUEST_SECONDS)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if 200 <= status < 300:
                return True
            problem = f"status {status}"
        if now - (run.completed_at or run.started_at) > DELIVERY.within_seconds * 1000:
            logger.error("Dropped event %s: %s did not accept it (%s).", event["id"], webhook, problem)
            return True
        logger.warning("Will retry event %s: %s did not accept it (%s).", event["id"], webhook, problem)
        return False


def event_of(session: SessionState, run: RunRecord) -> dict[str, Json] | None:
    """Return the event about the end of a run; None for an interrupted run, which has not ended."""
    kinds: dict[str, EventType] = {"completed": "run.completed", "failed": "run.failed"}
    kind = "run.suspended" if run.status in SUSPENDED else kinds.get(run.status)
    if kind is None:
        return None
    event: dict[str, Json] = {
        "id": f"evt-{run.run_id}-{kind.removeprefix('run.')}",
        "type": kind,
        "created_at": run.completed_at,
        "session_id": session.session_id,
        "run_id": run.run_id,
        "turn": run.turn,
        "agent_type": session.agent_type,
        "user_id": session.user_id,
        "status": run.status,
        "output": run.output,
        "error": run.error,
    }
    if kind == "run.suspended":
        pending = session.pending_client_tool_calls.values()
        event["suspended"] = [
            {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name, "deadline_at": call.deadline_at}
            for call in pending
            if call.submitted_at is None
        ]
    return event


def _entry_id(name: str, session_id: str) -> str:
    digest = hashlib.blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{OUTBOX}/{name}/{digest}"


def _entry_of(stored: SessionState) -> Entry:
    return msgspec.convert(stored.output, Entry)


def _pause_ms(attempts: int) -> int:
    return int(DELIVERY.delay_seconds(attempts - 1) * 1000)
