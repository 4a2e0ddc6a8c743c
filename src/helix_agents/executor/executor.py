"""AgentExecutor: the public API. Runs agents in this process, on stores that other processes may share.

It only assembles parts: `starting.py` starts and continues runs, `local_runs.py` drives those of this process,
`conversations.py` changes conversations, `remote.py` controls sessions wherever they run, and `workers/claimable.py`
recovers sessions whose process died.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, Unpack, get_args

from ..agent import Agent, AgentRegistry, Output
from ..clock import Clock, IdSource, random_id, system_clock
from ..codec import Json
from ..errors import InvalidArgument
from ..ids import ensure_id
from ..llm.contract import LLM
from ..llm.named import NamedLLM
from ..messages import Message
from ..stores.blobs.contract import BlobStore
from ..stores.memory.contract import MemoryStore
from ..stores.paging import ensure_limit
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from ..types import Page, SessionState
from .conversations import Conversations
from .handle import AgentResult, RunHandle
from .inbox import Waiting
from .later.outbox import Outbox
from .later.schedules import Schedule, ScheduleOptions, Schedules, new_schedule
from .later.tokens import HookTokens
from .later.webhooks import Webhook
from .local_runs import LocalRuns
from .options import ExecuteOptions, Input, SubmitOptions, as_messages, read_request
from .remote import Completion, RemoteControl
from .retrying import patient_store, patient_streams, patient_usage
from .run.dependencies import DepsFactory
from .run.hooks import Hooks
from .run.model_call import RetryPolicy
from .services import Durability, Services, StoresLike, given_stores
from .session.observe import CanResume, find
from .session.questions import ToolResultReceipt
from .starting import Starter
from .stream.follow import ExecutedChunks
from .stream.snapshot import SessionView
from .tasks import run_in_own_loop
from .workers.claimable import Recovery, due_sessions
from .workers.wakeup import wake_workers


class AgentExecutor(Conversations):
    """Executes agents. All durable data is in the stores; this object may be discarded at any time.

    `AgentExecutor(stores, llm)` takes what `open_stores` returns, and records usage; `AgentExecutor(state_store,
    stream_manager, llm)` takes single stores. `llm`: a model, or its name, such as `"anthropic:NAME"`.
    `deps_factory`: a function of the session, sync or async, that creates the deps of runs that are given none.
    `memory_store`: the store behind `ToolContext.memory`.

    `lease_seconds`: how long after its last heartbeat a run counts as crashed. `agents`: registered by name from the
    start, so that `resume` accepts the name; executing an agent also registers it.
    `suspend_grace_seconds`: how long sub-agents may continue while their parent waits for a person, before the parent
    suspends; they are then interrupted and continue when it does. By default they may finish first. `durability`: with
    `"call"`, every finished tool call is durable before it is announced, and does not run again after a crash; with
    `"step"`, only whole steps are durable, which saves writes: after a crash the open step and its model call run
    again.

    `webhooks`: receivers of the events `run.completed`, `run.failed` and `run.suspended`. `secret`: signs the tokens of
    deferred calls and must be the same in every process; the first of several signs, all are accepted. `public_url`:
    the server's public address, for the URLs of deferred calls.

    Methods that take `user_id` treat a session of another user as missing.
    """

    def __init__(
        self,
        state_store: StateStore | StoresLike,
        stream_manager: StreamManager | LLM | str | None = None,
        llm: LLM | str | None = None,
        *,
        usage_store: UsageStore | None = None,
        memory_store: MemoryStore | None = None,
        blob_store: BlobStore | None = None,
        lease_seconds: float = 10,
        agents: Iterable[Agent] = (),
        deps_factory: DepsFactory | None = None,
        hooks: Sequence[Hooks] = (),
        retry: RetryPolicy | None = None,
        poll_seconds: float = 0.06,
        suspend_grace_seconds: float | None = None,
        durability: Durability = "call",
        webhooks: Sequence[Webhook] = (),
        secret: str | Sequence[str] | None = None,
        public_url: str | None = None,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        given = given_stores(state_store, stream_manager, llm, usage_store, memory_store, blob_store)
        if deps_factory is not None and not callable(deps_factory):
            raise InvalidArgument("deps_factory must be a function of the session: pass the value itself to execute().")
        if lease_seconds <= 0 or poll_seconds <= 0:
            raise InvalidArgument("lease_seconds and poll_seconds must be positive.")
        if durability not in get_args(Durability):
            raise InvalidArgument(f"Invalid durability {durability!r}: expected 'call' or 'step'.")
        self.services = Services(
            store=patient_store(given.state),
            streams=patient_streams(given.streams),
            llm=given.llm,
            usage=patient_usage(given.usage),
            memory=given.memory,
            blobs=given.blobs,
            hooks=list(hooks),
            lease_seconds=lease_seconds,
            poll_seconds=poll_seconds,
            suspend_grace_seconds=suspend_grace_seconds,
            durability=durability,
            retry=retry or RetryPolicy(),
            clock=clock,
            ids=ids,
            hook_tokens=HookTokens(secret, public_url),
            carries=given.state.carries(given.streams, given.usage),
        )
        self.agents = AgentRegistry(agents)
        self.runs = LocalRuns(self.services, self.agents, self, deps_factory)
        self._remote = RemoteControl(self.services, self.agents, self.runs)
        self.starter = Starter(self.runs, self._remote)
        self._schedules = Schedules(self.services, self.agents, self._submit_due)
        self._outbox = Outbox(self.services)
        self.add_webhooks(*webhooks)
        self.recovery = Recovery(self.services, self.starter, self._schedules, self._outbox)

    def add_hooks(self, *hooks: Hooks) -> None:
        """Add hooks for runs that start from now on."""
        self.services.hooks.extend(hooks)

    def add_webhooks(self, *webhooks: Webhook) -> None:
        """Add receivers for the events of runs that start from now on."""
        if webhooks and not self._outbox.types:
            self.add_hooks(self._outbox)
        self._outbox.add(webhooks)

    # -- runs

    async def execute(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> RunHandle[Output]:
        """Start a run: in a new session, or as the next turn of a finished one. The options are in `ExecuteOptions`.

        A session that was interrupted, crashed or waits for a response continues with `input` as the next message.
        Raises `AlreadyRunning` if the session is running.
        """
        self.runs.ensure_open()
        return await self.starter.start(read_request(self.runs.known(agent), input, options))

    async def run(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> AgentResult[Output]:
        """Execute, and wait until the run ends or suspends. Takes the same options as `execute`."""
        return await (await self.execute(agent, input, **options)).result()

    def run_sync(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> AgentResult[Output]:
        """Call `run` where no event loop is running. All calls of a thread share one loop, so stores may be reused."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run_in_own_loop(self.run(agent, input, **options))
        raise InvalidArgument("run_sync() was called while an event loop is running: write `await executor.run(...)`.")

    def stream(self, agent: Agent | str, input: Input, **options: Unpack[ExecuteOptions]) -> ExecutedChunks:
        """Execute at the first `anext`, and iterate over the chunks of the run. Takes the same options as `execute`."""

        async def start() -> RunHandle:
            return await self.execute(agent, input, **options)

        return ExecutedChunks(start)

    async def submit(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[SubmitOptions]
    ) -> RunHandle[Output]:
        """Store a run, in one commit with the user's message; any worker starts it.

        The handle follows the run wherever it runs: `result` waits until the session stops, even if no worker has
        started it yet, or if a worker dies and another continues. A session that was interrupted or waits for a
        response continues with `input` as the next message. Raises `AlreadyRunning` if the session is running or waits
        for a worker.
        """
        self.runs.ensure_open()
        handle = await self.starter.start(read_request(self.runs.known(agent), input, options), released=True)
        await self._announce_work()
        return handle

    async def resume(
        self,
        agent: Agent[Output] | str,
        session_id: str,
        *,
        message: str | None = None,
        deps: Any = None,
        user_id: str | None = None,
    ) -> RunHandle[Output]:
        """Continue a session whose run was interrupted or crashed, or whose questions were answered.

        `message` becomes the next message; questions that are still open are then settled without a response.
        Exactly one of several callers gets the session, the others `AlreadyRunning`. Raises `NotResumable` if there is
        nothing to do.
        """
        self.runs.ensure_open()
        given: Message | None = None if message is None else {"role": "user", "content": message}
        known = self.runs.known(agent)
        return await self.starter.resume(known, session_id, message=given, deps=deps, user_id=user_id)

    async def retry(
        self,
        session_id: str,
        *,
        agent: Agent[Output] | str | None = None,
        deps: Any = None,
        user_id: str | None = None,
    ) -> RunHandle[Output]:
        """Run the failed turn of a session again, from its last committed step: finished work is not repeated.

        Without `agent`, the agent is found by its name. The limits of the failed run apply again, counted from zero.
        Raises `NotResumable` for a session that has not failed.
        """
        self.runs.ensure_open()
        if agent is None:
            agent = (await find(self.services, session_id, user_id=user_id)).existing.agent_type
        return await self.starter.retry(self.runs.known(agent), session_id, deps=deps, user_id=user_id)

    async def get_handle(
        self, agent: Agent[Output] | str, session_id: str, *, user_id: str | None = None
    ) -> RunHandle[Output] | None:
        """Return a handle on the latest run of a session, wherever it runs or ran; None if the session does not
        exist."""
        known = self.runs.known(agent)
        found = await find(self.services, session_id, agent=known, user_id=user_id)
        return None if found.session is None else self.runs.handle(known, found.session, found.run)

    async def recover(self, *, limit: int = 100) -> list[RunHandle]:
        """Continue up to `limit` sessions of known agents that wait for a worker or whose process died.

        Also closes stopped sessions whose process died before it could close the stream.
        """
        self.runs.ensure_open()
        ensure_limit(limit)
        names, count = self.recovery.types(agent.name for agent in self.agents), 0
        handles: list[RunHandle] = []
        async with aclosing(due_sessions(self.services, names)) as due:
            async for session in due:
                if not self.recovery.may_take(session) or not (picked := await self.recovery.pick_up(session)):
                    continue
                count += 1
                if isinstance(picked, RunHandle):
                    handles.append(picked)
                if count == limit:
                    break
        return handles

    async def hand_over(self, handles: Iterable[RunHandle[Any]] | None = None) -> None:
        """Finish the current steps of these runs, or of all runs here, and release them to other processes."""
        await self.runs.hand_over(handles)

    # -- schedules

    async def schedule(self, agent: Agent | str, input: Input, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Start a run at each due time: once `at` a time, `every_seconds`, or by `cron`. See `ScheduleOptions`.

        Workers that know the agent start exactly one run for each due time (X11), even after crashes: a turn of the
        session `session_id`, once it is free, or a new session.
        """
        schedule = new_schedule(self.runs.known(agent).name, options, self.services)
        stored = await self._schedules.add(schedule, as_messages(input))
        await self._announce_work()  # idle workers sleep until the next due time they know
        return stored

    async def list_schedules(self, *, user_id: str | None = None) -> list[Schedule]:
        """Return the schedules that have due times left, newest first; `user_id`: only this user's."""
        return await self._schedules.list(user_id)

    async def cancel_schedule(self, schedule_id: str, *, user_id: str | None = None) -> bool:
        """Delete a schedule; return False if it does not exist. Runs that it started continue."""
        return await self._schedules.cancel(schedule_id, user_id)

    async def _submit_due(self, schedule: Schedule, due: int, messages: Sequence[Message], key: str) -> None:
        await self.submit(
            schedule.agent,
            messages,
            session_id=schedule.session_id or f"{schedule.schedule_id}-{due}",
            user_id=schedule.user_id,
            metadata={"schedule_id": schedule.schedule_id},
            idempotency_key=key,
        )

    # -- sessions, wherever they run

    async def can_resume(self, session_id: str, *, user_id: str | None = None) -> CanResume:
        """Return whether `resume` would continue the session, and why or why not."""
        return await self._remote.can_resume(session_id, user_id=user_id)

    def watch(self, session_id: str) -> SessionView:
        """Open a session as a chat shows it: `async with executor.watch(session_id) as view:`.

        `view.session`, `view.messages` and `view.sequence` are from one consistent read. `async for stored in view`
        continues exactly there: chunks with their sequences, live, across all turns, until the session is deleted.
        """
        return SessionView(self.services, ensure_id(session_id, "session_id"))

    async def interrupt(self, session_id: str, reason: str | None = None, *, user_id: str | None = None) -> None:
        """Ask a session's run to stop at the next safe point, wherever it runs; it can be resumed."""
        await self._remote.interrupt(session_id, reason, user_id=user_id)

    async def abort(self, session_id: str, reason: str | None = None, *, user_id: str | None = None) -> None:
        """Stop a session's run immediately, its tools included; the session ends `failed`.

        Before that, the run undoes what tools with `undo` did in the turn. If no process owns the run, a worker does,
        or this executor if it knows the agent.
        """
        if (undoing := await self._remote.abort(session_id, reason, user_id=user_id)) is not None:
            await self._announce_work()
            if any(agent.name == undoing.agent_type for agent in self.agents):
                await self.recovery.pick_up(undoing)

    async def submit_tool_result(
        self,
        session_id: str,
        tool_call_id: str | None = None,
        *,
        approval_id: str | None = None,
        result: Json = ...,
        error: str | None = None,
        approved: bool | None = None,
        reason: str | None = None,
        arguments: Mapping[str, Json] | None = None,
        happened: Json = ...,
        answered_by: str | None = None,
        user_id: str | None = None,
    ) -> ToolResultReceipt:
        """Respond to a question that a run has asked: `result` or `error` of a client tool, `approved`, or `happened`.

        Works from any process, in any order, and also on the root session of the one that asked. Repeating it is
        harmless. Once no question is open, a worker or `resume` continues the session. An approval may be identified by
        its `approval_id` instead of the call's id. `arguments`: approve the call with these arguments; the model is
        informed. `happened`: whether a call with an unknown outcome took effect. `True`, with its `result` if known;
        `False`: it did not, so it runs; `None`: it cannot be determined, and the model is informed. `answered_by`: the
        user who responds; stored with the response.
        """
        receipt = await self._remote.submit_tool_result(
            session_id,
            tool_call_id,
            approval_id=approval_id,
            result=result,
            error=error,
            approved=approved,
            reason=reason,
            arguments=arguments,
            happened=happened,
            answered_by=answered_by,
            user_id=user_id,
        )
        await self._announce_work()
        return receipt

    async def complete_deferred(self, token: str, *, result: Json = ..., error: str | None = None) -> Completion:
        """Complete a deferred call with its `result` or an `error`, by the token that `ctx.defer` returned."""
        completion = await self._remote.complete_deferred(token, result=result, error=error)
        await self._announce_work()
        return completion

    async def list_waiting(
        self, *, user_id: str | None = None, agent_type: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Waiting]:
        """Return the open questions of all sessions, of one user's or of one agent's."""
        return await self._remote.list_waiting(user_id=user_id, agent_type=agent_type, limit=limit, cursor=cursor)

    async def fork_session(
        self,
        session_id: str,
        new_session_id: str,
        *,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
        user_id: str | None = None,
    ) -> SessionState:
        """Create a new session from another one as it is now, or as it was at a checkpoint, with its images and files.

        `forked_from` stores its origin. `metadata` and `tags`, if given, replace those of the original.
        """
        return await self._remote.fork(
            session_id, new_session_id, checkpoint_id=checkpoint_id, metadata=metadata, tags=tags, user_id=user_id
        )

    async def delete_session(self, session_id: str, *, keep_usage: bool = False, user_id: str | None = None) -> bool:
        """Delete a session, its descendants, their streams and their usage; return False if it does not exist.

        Stops its run first. `keep_usage` retains their usage entries, for billing.
        """
        deleted = await self._remote.delete_session(session_id, keep_usage=keep_usage, user_id=user_id)
        if deleted:
            await self._outbox.forget(session_id)
        return deleted

    async def restore(self, session_id: str, checkpoint_id: str, *, user_id: str | None = None) -> SessionState:
        """Restore a session and its stream to one of its checkpoints. Raises `AlreadyRunning`."""
        return await self._remote.restore(session_id, checkpoint_id, user_id=user_id)

    async def _announce_work(self) -> None:
        """Wake idle workers, because a run or a schedule waits for one. Overridden where no workers listen."""
        await wake_workers(self.services.streams)

    # -- resources

    async def close(self) -> None:
        """Stop all runs here as a crash would, except that other processes need not wait for the leases to expire.

        No more runs start here after that; calls that only read or control sessions still work.
        """
        await self.runs.close()
        await self._outbox.close()
        if isinstance(self.services.llm, NamedLLM):  # opened by this executor
            await self.services.llm.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
