"""Start and continue runs, for `execute`, `submit`, `resume`, `retry` and workers.

Each looks up in the table (`session/standing.py`) what its intent means for the session now, makes that claim
(`session/claim.py`), and starts the run here or leaves it to a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from ..agent import Agent
from ..errors import (
    AlreadyRunning,
    InvalidArgument,
    NotResumable,
    RunLost,
    SessionExists,
    SessionNotFound,
    VersionConflict,
)
from ..failures import INPUT_REFUSED
from ..messages import Message
from ..retry import CONFLICT
from ..types import SessionState
from .handle import RunHandle
from .local_runs import LocalRuns
from .options import Request, ensure_messages
from .remote import RemoteControl
from .run.budget import ensure_countable
from .run.dependencies import future_session
from .session.branching import start_branch
from .session.claim import REPLACED, Claim, NewRun, create_turn, start_turn
from .session.closing import close, decided
from .session.idempotency import KeyedRequest, find_run, keyed_request, new_session_id, session_of_key
from .session.observe import Found, find
from .session.queued_messages import enqueue
from .session.standing import Action, Intent, Standing, decide
from .session.take_over import continue_run, take_over
from .step.artifacts import Artifacts

T = TypeVar("T")


class Starter:
    """Starts and continues runs."""

    def __init__(self, runs: LocalRuns, remote: RemoteControl) -> None:
        self._runs = runs
        self._services = runs.services
        self._remote = remote

    # -- execute and submit

    async def start(self, request: Request, *, released: bool = False, engine: str | None = None) -> RunHandle:
        """Start the requested run. `released`: leave the run to a worker or an engine."""
        ensure_countable(self._services, request.limits, request.agent.limits)
        limits = None if request.limits is None else msgspec.to_builtins(request.limits)
        queued = released and engine is None
        if request.not_before is not None and not queued:
            raise InvalidArgument("not_before requires submit() and workers: nothing else waits for it.")
        new = NewRun(self._new_id(), released, engine, queued=queued, not_before=request.not_before, limits=limits)
        if request.key is None:
            return await self._start_or(replace(request, session_id=request.session_id or new_session_id()), new)
        keyed = keyed_request(request.key, request.fingerprint)
        new = msgspec.structs.replace(new, idempotency_key=keyed.key, request_digest=keyed.digest)
        if request.session_id is None:
            session_id = await session_of_key(self._services.streams, keyed.key, request.user_id)
            request = replace(request, session_id=session_id)
        if (started := await self._started_before(request, keyed)) is not None:
            return started
        if request.if_running == "interrupt":
            await self._remote.stop_and_wait(request.id)
        try:
            return await self._start(request, new)
        except (AlreadyRunning, SessionExists, VersionConflict):
            # The same request may have been sent twice concurrently.
            if (started := await self._started_before(request, keyed)) is None:
                raise
            return started

    async def _without_bytes(self, request: Request, session: SessionState) -> Request:
        """Store images and files of the input as blobs, which must exist before a message refers to them."""
        artifacts = Artifacts(self._services.blobs, session.root_session_id or session.session_id)
        return replace(request, messages=await artifacts.without_bytes(request.messages))

    async def _start_or(self, request: Request, new: NewRun) -> RunHandle:
        """Start the session; if it is running, apply `if_running`, and repeat if the session has changed since."""
        if request.if_running == "enqueue":
            seen = await find(self._services, request.id, user_id=request.user_id)
            request = replace(request, expected=seen)
        for _ in CONFLICT.attempts():
            try:
                return await self._start(request, new)
            except AlreadyRunning:
                if request.if_running == "reject":
                    raise
                if request.if_running == "interrupt":
                    await self._remote.stop_and_wait(request.id)
                elif (found := await find(self._services, request.id, user_id=request.user_id)).session is not None:
                    request, store = await self._without_bytes(request, found.session), self._services.store
                    _ensure_same(request, found)
                    if await enqueue(store, self._services.ids, found.session, request.messages) is not None:
                        found = await find(self._services, request.id)
                        return self._runs.handle(request.agent, found.existing, found.run)
        raise AlreadyRunning(request.id)

    async def _start(self, request: Request, new: NewRun) -> RunHandle:
        agent, intent = request.agent, Intent.SUBMIT if new.released else Intent.START
        if request.branch_at is not None:
            intent = Intent.BRANCH
        for _ in CONFLICT.attempts():
            found, action = await decided(
                self._services, intent, request.id, agent=agent, user_id=request.user_id, messages=True
            )
            if found.session is not None and request.if_exists == "reject":
                raise SessionExists(request.id)
            _ensure_same(request, found)
            if found.session is not None and await self._has_used_key(request):
                raise AlreadyRunning(request.id)
            session = found.session or future_session(agent, request.id, request.session_options)
            if action not in (Action.TAKE_OVER, Action.BRANCH):
                ensure_messages(request.messages)
            request = await self._without_bytes(request, session)
            deps = None if new.released else await self._runs.deps_for(agent, session, request.deps)
            try:
                claim = await self._claim(found, action, request, new)
            except SessionExists:
                await self._ensure_may_continue(request)
                continue
            except RunLost:
                if not new.released:
                    raise
                # A worker picked up the run before its stream was prepared here, and has prepared it.
                claimed = await find(self._services, request.id)
                return self._runs.handle(agent, claimed.existing, claimed.run)
            if new.released:
                return self._runs.handle(agent, claim.session, claim.run)
            return await self._runs.start(agent, claim, deps, key=request.key is not None)
        raise AlreadyRunning(request.id)

    async def _ensure_may_continue(self, request: Request) -> None:
        """Raise if the session that another process has just created is not for this request."""
        found = await find(self._services, request.id, user_id=request.user_id)
        if found.session is None:
            raise SessionNotFound(request.id)
        if request.if_exists == "reject":
            raise AlreadyRunning(request.id)

    async def _claim(self, found: Found, action: Action, request: Request, new: NewRun) -> Claim:
        services, messages = self._services, request.messages
        if action is Action.CREATE:
            return await create_turn(services, request.agent, request.id, messages, new, request.session_options)
        session = found.existing
        if action is Action.BRANCH:
            assert request.branch_at is not None
            return await start_branch(services, found, request.branch_at, messages, new)
        if action is Action.START:
            return await self._not_stalled(found, start_turn(services, found, messages, new))
        if len(messages) > 1 or (not messages and not new.released):
            raise InvalidArgument(f"Session {request.id!r} is {session.status}: continue with one message.")
        if not messages:
            await decided(services, Intent.RESUME, request.id, engine=found.seen.engine)
        message = messages[0] if messages else None
        return await self._not_stalled(found, take_over(services, found, new, message=message))

    async def _not_stalled(self, found: Found, claiming: Awaitable[T]) -> T:
        """Return the claim. Raises `RunLost` if this process stalled until another one took over."""
        try:
            return await claiming
        except AlreadyRunning as error:
            if self._services.clock() - found.read_at <= self._services.lease_ms:
                raise
            why = f"{REPLACED} while this one stalled"
            raise RunLost(found.seen.session_id, found.seen.run_id or "", why) from error

    async def _has_used_key(self, request: Request) -> bool:
        """Return whether the same request has started a run, which may even have finished.

        Called after the read that guards the claim: a run that starts later makes the store reject the claim.
        """
        if request.key is None:
            return False
        return any(run.idempotency_key == request.key for run in await self._services.store.list_runs(request.id))

    async def _started_before(self, request: Request, keyed: KeyedRequest) -> RunHandle | None:
        """Return the run that an idempotency key started, continued if its process died."""
        for _ in CONFLICT.attempts():
            found = await find(self._services, request.id, agent=request.agent, user_id=request.user_id)
            if found.session is None:
                return None
            runs = await self._services.store.list_runs(request.id)
            run = find_run(request.id, runs, keyed)
            if run is None:
                return None
            latest = runs[-1]
            is_lost = found.seen.standing is Standing.LEASE_EXPIRED and latest.idempotency_key == keyed.key
            # An engine continues its own run.
            if is_lost and not decide(found.seen, Intent.RESUME).is_refusal:
                try:
                    resumed = await self.resume(
                        request.agent, request.id, incarnation=found.session.incarnation, deps=request.deps
                    )
                except (AlreadyRunning, NotResumable, SessionNotFound):
                    continue
                task = self._runs.task_of(resumed.run_id)
                # The caller gets the run that the key started, from its start, whichever process continues it.
                return self._runs.handle(request.agent, found.session, run, task, continues=True)
            return self._runs.handle(request.agent, found.session, run, continues=True)
        raise AlreadyRunning(request.id)

    # -- resume, retry, recover

    async def resume(
        self,
        agent: Agent,
        session_id: str,
        *,
        message: Message | None = None,
        user_id: str | None = None,
        incarnation: str | None = None,
        deps: Any = None,
    ) -> RunHandle:
        """Continue a session whose run was interrupted or crashed, or whose questions were answered.

        `incarnation`: the session must still be the one that the caller has read.
        """
        intent = Intent.RESUME if message is None else Intent.RESUME_WITH_MESSAGE
        found, action = await decided(self._services, intent, session_id, agent=agent, user_id=user_id, messages=True)
        session = found.existing
        if incarnation not in (None, session.incarnation):
            raise SessionNotFound(session_id)
        if action is Action.CLOSE:
            await self._not_stalled(found, close(self._services, found))
            return self._runs.handle(agent, session, found.run)
        deps = await self._runs.deps_for(agent, session, deps)
        if action is Action.CONTINUE:
            claiming = continue_run(self._services, found)
        elif action is Action.START:
            assert message is not None
            claiming = start_turn(self._services, found, [message], NewRun(self._new_id()))
        else:
            claiming = take_over(self._services, found, NewRun(self._new_id()), message=message)
        return await self._runs.start(agent, await self._not_stalled(found, claiming), deps)

    async def retry(
        self,
        agent: Agent,
        session_id: str,
        *,
        user_id: str | None = None,
        deps: Any = None,
        engine: str | None = None,
    ) -> RunHandle:
        """Run a failed turn again from its last committed step, here or in an engine."""
        found, _ = await decided(self._services, Intent.RETRY, session_id, agent=agent, user_id=user_id, messages=True)
        session, run = found.existing, found.run
        if run is None:
            raise NotResumable(session_id, "nothing to retry")
        if session.failure_reason == INPUT_REFUSED:
            raise NotResumable(session_id, "its input was refused and removed; execute() starts another turn")
        new = NewRun(self._new_id(), released=engine is not None, engine=engine, limits=run.limits)
        claim = await self._not_stalled(found, start_turn(self._services, found, [], new))
        if engine is not None:
            return self._runs.handle(agent, claim.session, claim.run)
        deps = await self._runs.deps_for(agent, session, deps)
        return await self._runs.start(agent, claim, deps)

    async def recover(self, found: Found, action: Action, *, worker: str | None = None) -> RunHandle | None:
        """Carry out a worker's decision: continue, take over or close; return None if nothing runs then."""
        session = found.existing
        agent = self._runs.agents.get(session.agent_type)
        if action is Action.CLOSE:
            await close(self._services, found)
            return None
        deps = await self._runs.deps_for(agent, session)
        if action is Action.CONTINUE:
            claim = await continue_run(self._services, found, worker=worker)
        else:
            claim = await take_over(self._services, found, NewRun(self._new_id(), worker=worker))
        return await self._runs.start(agent, claim, deps)

    def _new_id(self) -> str:
        return f"run-{self._services.ids()}"


def _ensure_same(request: Request, found: Found) -> None:
    """Raise if the session that a request is for is gone, or if the conversation that it branches has continued."""
    expected, session = request.expected, found.session
    if expected is None or expected.session is None:
        return
    if session is None or session.incarnation != expected.session.incarnation:
        raise SessionNotFound(request.id)
    # With "interrupt", the run that is stopped first may still commit.
    leaves = request.branch_at is not None and request.if_running == "reject"
    if leaves and found.commit_id != expected.commit_id:
        raise VersionConflict(expected.session.version, session.version, session.status, request.id)
