"""RedisStateStore: the writing verbs of the state store as programs.

Every write to a session is one program (`compile.py`, `runner.py`). What concerns other slots (the listing index, who
owns a run id) is written before the session and repaired when found wrong. `read_verbs.py` and
`runs_and_refs.py` hold the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ....clock import Clock, IdSource, random_id, system_clock
from ....codec import encode
from ....errors import StoreUnavailable
from ....lifecycle import SUSPENDED
from ....retry import CONTENTION
from ....stores.state.commit import Applied, CellName, Commit, CommitRefused, CustomChanges
from ....stores.state.plan import refused_owner
from ....stores.usage.contract import UsageStore
from ....streams.contract import StreamManager
from ....types import Owner, SessionStatus, StatusConflict, StatusSwapped
from ..client.connection import Client, Command
from ..keys import SessionKeys, labels_of, run_key, short_checkpoint_id, status_facet
from ..program.runner import Done, Refused
from ..program.vocabulary import Program
from .carrying import RedisBeside
from .compile import Rewind, compiled, finish, require_session, set_fields, status_word
from .expiry import SESSION_TTL_SECONDS, WAITING_MS, lives_until
from .history import entry_of
from .runs_and_refs import RedisRecords
from .session_hash import as_texts, text_or_none
from .session_reader import checkpoint_from
from .shelves import ABOUT, STATE, read_moving

SWEEP_EVERY = 16
LATE_SECONDS = 20.0


class RedisStateStore(RedisRecords):
    """A state store on Redis or Valkey, one server or a cluster. The client stays the caller's."""

    _created = 0

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "agent",
        ttl: int = SESSION_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        beside: RedisBeside | None = None,
    ) -> None:
        super().__init__(redis, prefix=prefix, ttl=ttl, clock=clock, ids=ids)
        self._beside = beside

    def carries(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        return self._beside is not None and self._beside.holds(streams, usage)

    def carries_to(self, session_id: str, stream_id: str) -> bool:
        return session_id == stream_id or not self._servers.is_cluster

    # -- writing

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        commit = await self._with_copy(commit)
        keys, names = self._keys(commit.session_id), list(want)
        token = self._ids()
        announced_at = await self._announce_birth(commit, token)
        run_taken = commit.run is not None and not await self._claim_run(commit.run)
        if commit.run is not None and not run_taken:
            await self._claimable.enter(commit.run)
        if commit.change_run is not None:
            await self._claimable.before_change(*commit.change_run)
        if commit.due_at is not None:
            await self._claimable.enter_waiting(commit.session_id, commit.due_at)
        if commit.refs:
            await self._index.note_refs(commit.session_id, [ref.sub_session_id for ref in commit.refs])
        load = None
        if commit.along is not None and self._beside is not None:
            load = await self._beside.load(commit.along)
        for _ in CONTENTION.attempts():
            rewind = None if commit.restore_number is None else await self._read_rewind(keys, commit.restore_number)
            program = compiled(
                commit,
                keys,
                ttl_ms=self._ttl_ms,
                unique=token,
                want=names,
                announced=announced_at is not None,
                run_taken=run_taken,
                rewind=rewind,
                load=load,
                moving=await read_moving(self._servers, keys, commit.branches) if commit.branches.moves else None,
            )
            answer = await self._runner.run(program)
            if not isinstance(answer, Refused):
                if load is not None:
                    load.landed()
                await self._afterwards(commit, announced_at, token, moved=bool(answer.moved))
                return _applied(answer), dict(zip(names, map(text_or_none, answer.answers), strict=True))
            if answer.reason == "index":
                announced_at = await self._announce_change(commit, answer, token)
            elif answer.reason == "lease" and (change := await self._reread(commit.change_run)) is not None:
                commit = msgspec.structs.replace(commit, change_run=change)
            elif answer.reason != "rewind":
                await self._after_refusal_of(commit, answer, token)
                if load is not None:
                    return await load.refused(commit, answer), {}
                raise CommitRefused(answer.reason)  # type: ignore[arg-type]  # the reasons that compile.py gave
        raise StoreUnavailable(f"Session {commit.session_id!r} changes too fast to be restored: try again.")

    async def _read_branches(self, session_id: str) -> dict[str, str] | None:
        keys = self._keys(session_id)
        commands: list[Command] = [("EXISTS", keys.main), ("HKEYS", keys.branches)]
        exists, names = await self._servers.run(keys.main, commands, atomic=True)
        fields = [name for name in as_texts(names) if name.startswith(ABOUT)]
        if not fields:
            return {} if int(exists) else None
        texts = await self._servers.one(keys.branches, "HMGET", keys.branches, *fields)
        found = zip(fields, map(text_or_none, texts), strict=True)
        return {field.removeprefix(ABOUT): text for field, text in found if text is not None}

    async def _read_branch_state(self, session_id: str, branch_id: str) -> str | None:
        keys = self._keys(session_id)
        return text_or_none(await self._servers.one(keys.branches, "HGET", keys.branches, STATE + branch_id))

    async def _announce_birth(self, commit: Commit, token: str) -> float | None:
        """Enter a session in the index before it is created."""
        if not commit.create:
            return None
        assert commit.state is not None
        started_at = time.monotonic()
        await self._index.announce_state(commit.state, token=token)
        return started_at

    async def _announce_change(self, commit: Commit, refused: Refused, token: str) -> float:
        started_at = time.monotonic()
        facets: list[str] = []
        status = commit.status or (commit.state.status if commit.state is not None else None)
        if status is not None:
            facets.append(status_facet(status))
        expires_at = None
        if commit.state is not None:
            facets += labels_of(commit.state)
            expires_at = commit.state.expires_at
        created_at = refused.created_at or 0
        until = 0 if commit.state is None else lives_until(commit.state, commit.now)
        await self._index.announce(
            commit.session_id, created_at, facets, expires_at=expires_at, token=token, until=until
        )
        return started_at

    async def _afterwards(self, commit: Commit, announced_at: float | None, token: str, *, moved: bool) -> None:
        """Update other slots after a write. The write is complete without it."""
        late = announced_at is not None and time.monotonic() - announced_at > LATE_SECONDS
        if late or (moved and not commit.create):
            await self._keep_alive(commit.session_id)
        if commit.run is not None and time.time() * 1000 - commit.run.started_at > LATE_SECONDS * 1000:
            await self._claimable.enter(commit.run)  # another process may have taken it for a run that never came
        if commit.change_run is not None:
            await self._claimable.after_change(*commit.change_run)
        if commit.create:
            self._created += 1
            if self._created % SWEEP_EVERY == 0:
                await self._sweep()

    async def _after_refusal_of(self, commit: Commit, refused: Refused, token: str) -> None:
        if commit.create and commit.state is not None and refused.created_at != commit.state.created_at:
            await self._index.retract(commit.state, token=token)

    async def _sweep(self) -> None:
        """Check a few sessions that may have expired, so that the index does not keep them forever."""
        for session_id in await self._index.overdue():
            entered = await self._index.entered(session_id)
            stored = await self._read_session(session_id, custom_state=False)
            if stored is not None:
                await self._index.announce_state(stored.state, token=self._ids())
            elif entered.fresh is None:  # it expired, or its deletion was cut short
                for referrer in await self._index.take_referrers(session_id, ()):
                    await self._drop_ref(referrer, session_id)
                await self._index.forget(session_id, entered)

    async def _read_rewind(self, keys: SessionKeys, number: int) -> Rewind | None:
        """Return what a restore would revert; None if there is no such checkpoint."""
        row = text_or_none(await self._servers.one(keys.checkpoints, "LINDEX", keys.checkpoints, number - 1))
        if row is None:
            return None
        kept = checkpoint_from(row, number).undo_length
        commands: list[Command] = [
            ("HGET", keys.main, "restores"),
            ("LLEN", keys.undo),
            ("LRANGE", keys.undo, kept, -1),
            ("LRANGE", keys.checkpoints, number, -1),
            ("LINDEX", keys.checkpoints, number - 1),
        ]
        restores, length, entries, dropped, again = await self._servers.run(keys.main, commands, atomic=True)
        if text_or_none(again) != row:
            return await self._read_rewind(keys, number)
        rows = [checkpoint_from(text, 0).row for text in as_texts(dropped)]
        return Rewind(
            restores=text_or_none(restores),
            undo_length=int(length),
            kept_entries=kept,
            entries=[entry_of(text) for text in as_texts(entries)],
            checkpoint_count=number + len(rows),
            dropped_ids=[short_checkpoint_id(keys.session_id, each.checkpoint_id) for each in rows],
        )

    async def _swap_status(
        self,
        session_id: str,
        expected: tuple[str, ...],
        new: SessionStatus,
        *,
        also: Mapping[str, Any],
        expected_version: int | None,
        owner: Owner | None,
        due_at: int | None,
        now: int,
    ) -> StatusSwapped | StatusConflict | None:
        keys, announced = self._keys(session_id), False
        if due_at is not None:
            await self._claimable.enter_waiting(session_id, due_at)
        while True:
            program = Program.of_session(keys, self._ttl_ms)
            require_session(program, owner, expected_version)
            program.require_field("status", "among", "".join(map(status_word, expected)), "status")
            if announced:
                program.op("mark", status_word(new))
            else:
                program.require_field("index", "has", status_word(new), "statuses")
            swapped = {field: encode(value) for field, value in also.items()}
            if due_at is None:
                program.op("drop", "due_at")
            else:
                swapped["due_at"] = str(due_at)
            set_fields(program, now, swapped, ("+1", "+0", "+0", new))
            finish(program, now + WAITING_MS if new in SUSPENDED else "")
            answer = await self._runner.run(program)
            if not isinstance(answer, Refused):
                if answer.moved:
                    await self._keep_alive(session_id)
                return StatusSwapped(_applied(answer).version)
            if answer.reason == "index":
                await self._announce_change(Commit(session_id=session_id, now=now, status=new), answer, self._ids())
                announced = True
            elif answer.reason == "missing" or answer.status is None:
                return None
            else:
                return StatusConflict(answer.status, answer.version or 0)  # type: ignore[arg-type]  # stored by us

    # -- whole sessions

    async def _with_copy(self, commit: Commit) -> Commit:
        """Return the commit of a new session, with the messages and custom state that it copies from another."""
        if (copy := commit.copy) is None:
            return commit
        keys, at = self._keys(copy.session_id), None
        if copy.number is not None:
            row = text_or_none(await self._servers.one(keys.checkpoints, "LINDEX", keys.checkpoints, copy.number - 1))
            if row is None:
                raise CommitRefused("checkpoint")
            at = checkpoint_from(row, copy.number)
        last = -1 if copy.message_count is None else copy.message_count - 1
        wanted = (1, 0) if copy.message_count == 0 else (0, last)
        source = await self._reader.session(keys, at=at, messages=wanted)
        if source is None or source.fields["incarnation"] != copy.incarnation:
            raise CommitRefused("missing")
        if int(source.fields["version"]) != copy.version:
            raise CommitRefused("version")
        custom = CustomChanges(set_keys=source.custom.contents())
        return msgspec.structs.replace(commit, copy=None, messages=(*source.messages, *commit.messages), custom=custom)

    async def _delete(self, session_id: str, owner: Owner | None) -> bool:
        root = await self._read_session(session_id, custom_state=False)
        if root is None:
            return False
        if (reason := refused_owner(owner, root.state)) is not None:
            raise CommitRefused(reason)
        doomed = {session_id: owner or Owner(root.state.incarnation)}
        parents = [session_id]
        for parent in parents:  # grows while it is walked
            for child in await self._listing.children(parent):
                if child.session_id not in doomed:
                    doomed[child.session_id] = Owner(child.incarnation)
                    parents.append(child.session_id)
        # The root goes last: if this is cut short, it can be done again and finds what is left.
        for each in reversed(parents):
            try:
                await self._delete_one(each, doomed[each])
            except CommitRefused:
                if each == session_id and owner is not None:
                    raise
        return True

    async def _delete_one(self, session_id: str, owner: Owner) -> None:
        """Delete a session if it still belongs to the owner: another one with the same id may have been created
        since."""
        keys = self._keys(session_id)
        entered = await self._index.entered(session_id)
        run_ids, ref_ids = await self._ids_of(keys)
        runs = await self._read_runs(session_id, last=False)
        program = Program.of_session(keys, self._ttl_ms)
        require_session(program, owner)
        program.op("destroy")
        refused = await self._runner.run(program)
        if isinstance(refused, Refused):
            raise CommitRefused(refused.reason)  # type: ignore[arg-type]  # the reasons that compile.py gave
        for referrer in await self._index.take_referrers(session_id, ref_ids):
            await self._drop_ref(referrer, session_id)
        for run_id in run_ids:
            key = run_key(self._prefix, run_id)
            program = Program(key)
            program.require("owner", session_id, "GET", key)
            program.do("DEL", key)
            await self._runner.run(program)
            self._run_owners.pop(run_id, None)
        await self._claimable.remove(runs or [])
        await self._index.forget(session_id, entered)


def _applied(done: Done) -> Applied:
    return Applied(done.version, done.messages, done.steps, done.resumes, done.removed, done.turn, done.sequence)
