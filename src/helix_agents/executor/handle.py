"""RunHandle: follow, control and continue a run, in the process that executes it or in any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from ..agent import Agent, Output
from ..chunks import Chunk
from ..codec import Json
from ..errors import AlreadyRunning, NotResumable, RunLost, SessionNotFound, StoreError
from ..lifecycle import RUN_TERMINAL, SUSPENDED
from ..retry import CLOSING, LIVENESS, RESULT
from ..stores.usage.contract import UsageRollup
from ..streams.contract import StoredChunk, StreamReader
from ..types import PendingClientToolCall, RunRecord, SessionState, SessionStatus
from .services import Services
from .session.closing import wait_seconds
from .session.observe import CanResume, Found, find
from .session.questions import all_waiting
from .session.standing import UNCLOSED, Action, Intent, Standing, decide, reason_of
from .stream.follow import RunChunks, StreamPlace, stopped_session

T = TypeVar("T")


class AgentResult(msgspec.Struct, Generic[Output], frozen=True):
    """How a run stopped. `output` has the agent's output type.

    `suspended`: the questions that wait for a response, including those of sub-agents. `warnings`: writes of parallel
    tools that were lost, one sentence for each. `finish_reason`: why the model stopped in its last reply (`stop`,
    `length`, `content_filter`, ...), if known. `failure_reason`: the kind of failure (`model_error`, `usage_limit`,
    ...).
    """

    status: SessionStatus
    output: Output = None  # type: ignore[assignment]  # of a run that has not completed
    error: str | None = None
    suspended: list[PendingClientToolCall] = []
    warnings: list[str] = []
    finish_reason: str | None = None
    failure_reason: str | None = None
    session_id: str = ""
    run_id: str = ""


class Steering(Protocol):
    """The parts of an executor that a handle uses."""

    @property
    def services(self) -> Services: ...

    async def resume(
        self, agent: Agent[Output], session_id: str, *, message: str | None = None, deps: Any = None
    ) -> RunHandle[Output]: ...

    async def interrupt(self, session_id: str, reason: str | None = None) -> None: ...

    async def abort(self, session_id: str, reason: str | None = None) -> None: ...

    async def can_resume(self, session_id: str) -> CanResume: ...


async def result_of(services: Services, session: SessionState) -> AgentResult:
    """Return the result of a stopped session."""
    waits = await all_waiting(services.store, session, services.clock()) if session.status in SUSPENDED else []
    return result_at(session, waits)


def result_at(session: SessionState, waits: list[PendingClientToolCall]) -> AgentResult:
    """Return the result of a stopped session with its open questions."""
    return AgentResult(session.status, session.output, session.error, waits, failure_reason=session.failure_reason)


class RunHandle(Generic[Output]):
    """Follows and controls one run of a session."""

    def __init__(
        self,
        steering: Steering,
        agent: Agent[Output],
        *,
        session_id: str,
        run_id: str,
        stream_id: str,
        start_sequence: int,
        task: asyncio.Task[AgentResult] | None = None,
        continues: bool = False,
    ) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self._steering = steering
        self._agent = agent
        self._stream_id = stream_id
        self._start_sequence = start_sequence
        self._task = task
        self._continues = continues
        """Whether this handle takes the run over if its process dies: it was requested with its idempotency key."""

    @property
    def start_sequence(self) -> int:
        """The stream position before this run's first chunk."""
        return self._start_sequence

    def __repr__(self) -> str:
        return f"<run {self.run_id} of session {self.session_id}>"

    def stream(self, *, from_sequence: int | None = None, follow: bool = False, wait: bool = False) -> RunChunks[Chunk]:
        """Iterate over the chunks of this run, stored ones first, then live, until it ends or suspends.

        A failed run also ends the iteration, after its `error` chunk; `result` has the reason. The stream belongs to
        the session: if the next turn has started already, it starts with that turn. A canceled `anext`, as by
        `asyncio.wait_for`, loses nothing: the next one continues. Raises `RunLost`, or the error that ended the run, if
        no process is left to close the stream. `follow`: continue past the end of the run, across all later runs, until
        the session is deleted; wait for lost runs. `wait`: if nothing has been streamed yet, wait.
        """
        return self._read(self._position(from_sequence, follow, wait), lambda stored: stored.chunk)

    def stored_chunks(
        self, *, from_sequence: int | None = None, follow: bool = False, wait: bool = False
    ) -> RunChunks[StoredChunk]:
        """Iterate like `stream`, with the sequences to resume from."""
        return self._read(self._position(from_sequence, follow, wait), lambda stored: stored)

    def _read(self, place: StreamPlace, made: Callable[[StoredChunk], T]) -> RunChunks[T]:
        if place.follow:
            return RunChunks(self._services, place, made)
        return RunChunks(self._services, place, made, watch=self._close_when_lost, ended=self._closed)

    def _position(self, from_sequence: int | None, follow: bool, wait: bool) -> StreamPlace:
        start = self._start_sequence if from_sequence is None else from_sequence
        return StreamPlace(self.session_id, self._stream_id, start, follow=follow, wait=wait, starts_over=True)

    async def _close_when_lost(self, reader: StreamReader, lost: list[BaseException]) -> None:
        """Close the reader when no process will close the stream: the run is lost, or its session was restored."""
        error = await (self._lost_elsewhere() if self._task is None else self._lost_here(self._task))
        if error is None and self._task is not None:
            return  # it stopped, and closed its stream
        if error is not None:
            lost.append(error)
        with suppress(StoreError):  # the stream cannot be read to its end
            streams = self._services.streams
            while (info := await streams.get_stream_info(self._stream_id)) is not None:
                if reader.current_sequence >= info.latest_sequence:
                    break
                await asyncio.sleep(RESULT.first_seconds)
        await reader.close()

    async def _lost_here(self, task: asyncio.Task[AgentResult]) -> BaseException | None:
        """Return the error by which a run of this process was lost; None if it stopped and closed its stream."""
        await asyncio.wait({task})
        if task.cancelled():
            return RunLost(self.session_id, self.run_id, "its executor was closed")
        if task.exception() is None and task.result().status == "active":  # handed over
            self._task = None
            return await self._lost_elsewhere()
        return task.exception()

    async def _lost_elsewhere(self) -> BaseException | None:
        """Wait until no process will close the stream of the run; return the error if the run has died."""
        while True:
            await asyncio.sleep(LIVENESS.first_seconds)
            try:
                found = await find(self._services, self.session_id)
                if found.session is None:
                    continue  # its stream is deleted with it
                unclosed = found.seen.standing in UNCLOSED
                lost = await self._lost(found)
                stopped = found.session.status != "active"
                left_open = stopped and await stopped_session(self._services, self.session_id) is not None
            except StoreError:
                continue
            if lost is not None or unclosed:
                return lost or RunLost(self.session_id, self.run_id, "its process died")
            if left_open:
                return None

    async def _lost(self, found: Found) -> RunLost | None:
        """Return why the run is lost; None if it is not, or if this handle has continued it."""
        decision = decide(found.seen, Intent.AWAIT_RESULT)
        if not decision.is_refusal:
            return None
        if self._continues:
            with suppress(AlreadyRunning, NotResumable, RunLost):
                self._task = (await self._steering.resume(self._agent, self.session_id))._task
            return None
        return RunLost(self.session_id, self.run_id, reason_of(found.seen, decision))

    async def _closed(self) -> None:
        """Wait until the run record is closed, which happens after the stream is."""
        if self._task is not None:
            await asyncio.wait({self._task})
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds(self._services)
        while loop.time() < until:
            if (await find(self._services, self.session_id)).seen.standing is not Standing.CLOSING:
                return
            await asyncio.sleep(CLOSING.first_seconds)

    async def result(self) -> AgentResult[Output]:
        """Wait until the run ends or suspends. Raises `RunLost` if its process died or another one took over."""
        result = await self._result()
        typed = self._agent.typed_output(result.output)
        return msgspec.structs.replace(result, output=typed, session_id=self.session_id, run_id=self.run_id)

    async def stopped_here(self) -> None:
        """Wait until this process no longer works on the run. Raises the error by which the run was lost."""
        if self._task is not None:
            await self._result_here(self._task)

    async def _result(self) -> AgentResult[Json]:
        while True:
            if self._task is not None:
                result = await self._result_here(self._task)
                if result.status != "active":
                    return result
                self._task = None  # handed over: wait for the process that continues it
            found = await find(self._services, self.session_id)
            if found.session is None:
                raise SessionNotFound(self.session_id)
            if (ended := await self._ended_before(found)) is not None:
                return ended
            if decide(found.seen, Intent.AWAIT_RESULT).action is Action.RETURN:
                return await self._with_warnings(await result_of(self._services, found.session))
            if (lost := await self._lost(found)) is not None:
                raise lost
            if self._task is None:
                await asyncio.sleep(max(RESULT.first_seconds, self._services.poll_seconds))

    async def _ended_before(self, found: Found) -> AgentResult | None:
        """Return how the run ended, if a later turn or a restore has changed the session since."""
        run = found.run
        if run is None or not self.run_id:
            return None
        if run.run_id != self.run_id:
            run = _last_of_turn(await self._services.store.list_runs(self.session_id), self.run_id)
        if run is None or run.status not in RUN_TERMINAL:
            return None
        later = found.run is not None and found.run.run_id != run.run_id
        if not later and found.existing.status == run.status:
            return None
        return AgentResult(cast(SessionStatus, run.status), run.output, run.error)

    async def _with_warnings(self, result: AgentResult) -> AgentResult:
        """Return the result with warnings from the stream, because the run may have been in another process."""
        stored = await self._services.streams.get_all_chunks(self._stream_id)
        commits = [
            one.chunk for one in stored if one.sequence > self._start_sequence and one.chunk["type"] == "step_committed"
        ]
        warnings = [warning for chunk in commits for warning in chunk.get("warnings", ())]
        reason = commits[-1].get("finish_reason") if commits else None
        return msgspec.structs.replace(result, warnings=warnings, finish_reason=reason)

    async def _result_here(self, task: asyncio.Task[AgentResult]) -> AgentResult:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if not task.cancelled() or (waiter is not None and waiter.cancelling()):
                raise  # the caller was canceled, not the run
            raise RunLost(self.session_id, self.run_id, "its executor was closed") from None

    async def can_resume(self) -> CanResume:
        """Return whether `resume` would continue the session, and why or why not."""
        return await self._steering.can_resume(self.session_id)

    async def resume(self, *, message: str | None = None, deps: Any = None) -> RunHandle[Output]:
        """Continue the session; return a handle on the new run."""
        return await self._steering.resume(self._agent, self.session_id, message=message, deps=deps)

    async def interrupt(self, reason: str | None = None) -> None:
        """Ask the run to stop at the next safe point; it can be resumed."""
        await self._steering.interrupt(self.session_id, reason)

    async def abort(self, reason: str | None = None) -> None:
        """Stop the run immediately, its tools included; the session ends `failed`."""
        await self._steering.abort(self.session_id, reason)

    async def get_state(self) -> SessionState:
        """Return the session as it is stored now."""
        return await self._session()

    async def get_usage_rollup(self) -> UsageRollup:
        """Return the usage of the session and its sub-agents; all zero without a usage store."""
        usage = self._services.usage
        session = await self._services.store.load_state(self.session_id) if usage is not None else None
        if usage is None or session is None:
            return UsageRollup()
        return await usage.get_rollup(self.session_id, incarnation=session.incarnation)

    @property
    def _services(self) -> Services:
        return self._steering.services

    async def _session(self) -> SessionState:
        session = await self._services.store.load_state(self.session_id)
        if session is None:
            raise SessionNotFound(self.session_id)
        return session


def _last_of_turn(runs: list[RunRecord], run_id: str) -> RunRecord | None:
    """Return the last run that continued this run, or the run itself."""
    last = next((run for run in runs if run.run_id == run_id), None)
    for run in runs:
        if last is not None and run.resumes == last.run_id:
            last = run
    return last
