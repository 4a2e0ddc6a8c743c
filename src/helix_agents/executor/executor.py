"""AgentExecutor: the front door. Runs agents in this process, on stores that other processes may share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, get_args

import msgspec

from ..agent import Agent, AgentRegistry, Output
from ..clock import Clock, IdSource, random_id, system_clock
from ..codec import Json
from ..errors import AlreadyRunning, InvalidArgument, NotResumable, RunLost, SessionExists, SessionNotFound
from ..lifecycle import SESSION_TERMINAL
from ..limits import UsageLimits
from ..llm.contract import LLM
from ..messages import Message
from ..stores.memory.contract import MemoryStore
from ..stores.state.contract import StateStore
from ..stores.usage.contract import UsageStore
from ..streams.contract import StreamManager
from ..types import RunRecord, SessionState
from .construction import given_stores
from .handle import AgentResult, RunHandle
from .options import Input, as_messages, as_state, ensure_said
from .remote import RemoteControl
from .retrying import patient_store, patient_streams, patient_usage
from .run.budget import ensure_countable
from .run.children import SubAgents
from .run.dependencies import DepsFactory, deps_for, session_to_be
from .run.hooks import Hooks
from .run.loop import Run, open_run
from .run.model_call import RetryPolicy
from .services import Durability, Services, StoresLike
from .session.claim import REPLACED, Claim
from .session.continue_run import continue_run
from .session.failed_turns import retry_of
from .session.idempotency import KeyedRun, chosen_session, find_run, run_of_key
from .session.resumable import (
    WIND_UP_POLL_SECONDS,
    can_resume,
    ensure_resumable,
    is_live,
    is_untouched,
    load,
    load_settled,
    waits_for_worker,
)
from .session.take_over import claim_unfinished
from .session.tidying import tidy_up
from .session.turns import Seen, claim_turn
from .short_forms import ShortForms
from .step.queued_messages import IfExists, IfRunning, enqueue
from .workers.claimable import OthersBusiness
from .workers.submit import ENGINE, Submitting

MAX_TRIES = 50


class Asked(NamedTuple):
    """What somebody asks `execute` for, once it has been read."""

    agent: Agent
    session_id: str
    messages: list[Message]
    options: Mapping[str, Any]
    run_metadata: Mapping[str, Json]
    deps: Any
    if_exists: IfExists


class AgentExecutor(Submitting, RemoteControl, ShortForms):
    """Executes agents. Everything that must survive lies in the stores; this object may be thrown away at any time.

    `AgentExecutor(stores, llm)` takes what `open_stores` gives, and records usage; `AgentExecutor(state_store,
    stream_manager, llm)` takes single stores. `deps_factory`: a function of the session, async too, that makes the deps
    of runs which are given none. `memory_store`: what `ToolContext.memory` works on.

    `lease_seconds`: how long after its last sign of life a run counts as crashed. `agents`: known by name from the
    start, so that `resume` can be given a name; every agent that is executed becomes known as well.
    `suspend_grace_seconds`: how long a run that waits for a person lets its sub-agents go on before it suspends; they
    are then interrupted, and go on when it does. Unless given, they may finish first. `durability`: with `"call"` every
    finished tool call is durable before anybody hears of it, and does not run again after a crash; with `"step"` only
    whole steps are, which saves writes: after a crash the open step is asked for and run again.
    """

    def __init__(
        self,
        state_store: StateStore | StoresLike,
        stream_manager: StreamManager | LLM | None = None,
        llm: LLM | None = None,
        *,
        usage_store: UsageStore | None = None,
        memory_store: MemoryStore | None = None,
        lease_seconds: float = 10,
        agents: Iterable[Agent] = (),
        deps_factory: DepsFactory | None = None,
        hooks: Sequence[Hooks] = (),
        retry: RetryPolicy | None = None,
        poll_seconds: float = 0.06,
        suspend_grace_seconds: float | None = None,
        durability: Durability = "call",
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        given = given_stores(state_store, stream_manager, llm, usage_store, memory_store)
        if deps_factory is not None and not callable(deps_factory):
            raise InvalidArgument("deps_factory is a function of the session: give the value itself to execute().")
        if lease_seconds <= 0 or poll_seconds <= 0:
            raise InvalidArgument("lease_seconds and poll_seconds must be above zero.")
        if durability not in get_args(Durability):
            raise InvalidArgument(f"Invalid durability {durability!r}: expected 'call' or 'step'.")
        self.services = Services(
            store=patient_store(given.state),
            streams=patient_streams(given.streams),
            llm=given.llm,
            usage=patient_usage(given.usage),
            memory=given.memory,
            hooks=tuple(hooks),
            lease_seconds=lease_seconds,
            poll_seconds=poll_seconds,
            suspend_grace_seconds=suspend_grace_seconds,
            durability=durability,
            retry=retry or RetryPolicy(),
            clock=clock,
            ids=ids,
        )
        self.agents = AgentRegistry(agents)
        self._deps_factory = deps_factory
        self._children = SubAgents()
        self._tasks: dict[asyncio.Task[AgentResult], Run] = {}
        self._of_engines = OthersBusiness()
        self._closed = False

    # -- runs

    async def execute(
        self,
        agent: Agent[Output] | str,
        input: Input,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        expires_at: int | None = None,
        custom_state: Mapping[str, Json] | object | None = None,
        limits: UsageLimits | None = None,
        deps: Any = None,
        if_exists: IfExists = "continue",
        if_running: IfRunning = "reject",
        idempotency_key: str | None = None,
    ) -> RunHandle[Output]:
        """Start a run: of a new session, or the next turn of a finished one.

        A session that was interrupted, crashed or waits for an answer goes on with `input` as the next message. Raises
        `AlreadyRunning` for one that is running. `custom_state` replaces the agent's own for a new session; like
        `user_id`, `tags`, `metadata` and `expires_at` it is not looked at if the session exists already. `limits`: what
        the run may spend, besides those of the agent; they hold for whoever resumes it. `deps`: what tools find at
        `ToolContext.deps`; never stored, so whoever resumes gives it again, unless the executor has a `deps_factory`.

        `if_exists="reject"`: the session must be new. Raises `SessionExists`, and `AlreadyRunning` if another process
        makes it at the same moment.
        `if_running`, for a session that is running: `"reject"` raises `AlreadyRunning`. `"enqueue"` keeps the input for
        that run, which reads it with its next step, and returns its handle. `"interrupt"` stops that run at the next
        safe point and goes on with the input.

        `idempotency_key`: the same key for the same session gives the run that it started before, also after a crash,
        and starts nothing; with another request it raises `IdempotencyConflict`. Without a `session_id` the key and
        the `user_id` choose the session.
        """
        self._ensure_open()
        agent = self.known(agent)
        ensure_countable(self.services, limits, agent.limits)
        run_metadata: dict[str, Json] = {} if limits is None else {"limits": msgspec.to_builtins(limits)}
        messages = as_messages(input)
        _ensure_allowed(if_exists, if_running, idempotency_key)
        session_id = chosen_session(session_id, idempotency_key, user_id)
        options: dict[str, Any] = {
            "user_id": user_id,
            "tags": tags,
            "metadata": metadata,
            "expires_at": expires_at,
            "custom_state": as_state(custom_state),
        }
        asked = Asked(agent, session_id, messages, options, run_metadata, deps, if_exists)
        if idempotency_key is None:
            return await (self._execute(asked) if if_running == "reject" else self._execute_or(if_running, asked))
        request = [agent.name, messages, list(tags), metadata, expires_at, options["custom_state"]]
        keyed = run_of_key(session_id, idempotency_key, request)
        if (found := await self._begun_before(agent, session_id, keyed)) is not None:
            return found
        if if_running == "interrupt":
            await self._make_room(agent, session_id)
        return await self._execute_once(asked, keyed)

    async def _execute_once(self, asked: Asked, keyed: KeyedRun) -> RunHandle:
        """Execute under the name that the key gives, unless the same request, sent twice at once, was faster."""
        try:
            return await self._execute(asked, keyed.new_run_id())
        except (AlreadyRunning, SessionExists):
            if (found := await self._begun_before(asked.agent, asked.session_id, keyed)) is None:
                raise
            return found

    async def _execute(self, asked: Asked, run_id: str | None = None) -> RunHandle:
        agent, session_id, messages = asked.agent, asked.session_id, asked.messages
        began = self.services.clock()
        seen = None
        if await self.services.store.session_exists(session_id):
            if asked.if_exists == "reject":
                raise SessionExists(session_id)
            session, run = await load_settled(self.services, agent, session_id)
            if session.status == "active" and (is_live(run, self.services.clock()) or waits_for_worker(run)):
                raise AlreadyRunning(
                    session_id, run.run_id if run else None, lease_until=run.lease_until if run else None
                )
            if session.status not in SESSION_TERMINAL and not is_untouched(session, run):
                if len(messages) != 1:
                    raise InvalidArgument(f"Session {session_id!r} is {session.status}: go on with one message.")
                return await self._resume(agent, session, run, messages[0], began, run_id, deps=asked.deps)
        else:
            session = session_to_be(agent, session_id, asked.options)
            seen = Seen(None, None) if asked.if_exists == "reject" else None
        ensure_said(messages)
        deps = await deps_for(agent, session, asked.deps, self._deps_factory)
        claim = await claim_turn(
            self.services,
            agent,
            session_id,
            messages,
            session_options=asked.options,
            run_metadata=asked.run_metadata,
            run_id=run_id,
            seen=seen,
        )
        return await self._start(agent, claim, deps)

    async def _execute_or(self, if_running: IfRunning, asked: Asked) -> RunHandle:
        """Execute; where the session is running, do instead what was asked for, however often that changes."""
        agent, session_id = asked.agent, asked.session_id
        for _ in range(MAX_TRIES):
            try:
                return await self._execute(asked)
            except AlreadyRunning:
                if if_running == "interrupt":
                    await self._make_room(agent, session_id)
                elif await enqueue(self.services.store, self.services.ids, session_id, asked.messages) is not None:
                    return await self._running(agent, session_id)
        raise AlreadyRunning(session_id)

    async def _running(self, agent: Agent, session_id: str) -> RunHandle:
        """A handle on the run that has the session; one that is about to begin its record is waited for."""
        for _ in range(int(self.services.lease_seconds / WIND_UP_POLL_SECONDS) + 1):
            session, run = await load(self.services, agent, session_id)
            if session.status != "active" or is_live(run, self.services.clock()):
                break
            await asyncio.sleep(WIND_UP_POLL_SECONDS)
        here = (task for task, each in self._tasks.items() if run is not None and each.context.run_id == run.run_id)
        return self._handle(agent, session, run, next(here, None))

    async def _begun_before(self, agent: Agent, session_id: str, keyed: KeyedRun) -> RunHandle | None:
        """The run that an idempotency key has started, taken up again if its process died before it had a record."""
        for _ in range(int(self.services.lease_seconds / WIND_UP_POLL_SECONDS) + 1):
            began = self.services.clock()
            if not await self.services.store.session_exists(session_id):
                return None
            session, run = await load(self.services, agent, session_id)
            found = await find_run(self.services.store, session, keyed)
            if found is None:
                return None
            if isinstance(found, RunRecord):
                return self._handle(agent, session, found, None)
            if (await can_resume(self.services, session, run)).can_resume:
                with suppress(AlreadyRunning, NotResumable):
                    return await self._resume(agent, session, run, None, began)
            await asyncio.sleep(WIND_UP_POLL_SECONDS)
        raise AlreadyRunning(session_id)

    async def resume(
        self, agent: Agent[Output] | str, session_id: str, *, message: str | None = None, deps: Any = None
    ) -> RunHandle[Output]:
        """Go on with a session whose run was interrupted, crashed, or has got its answers.

        `message` is said to the model next; questions that still wait are then settled without an answer.
        Exactly one of many callers gets the session, the others `AlreadyRunning`. Raises `NotResumable` if there
        is nothing to do.
        """
        self._ensure_open()
        agent = self.known(agent)
        began = self.services.clock()
        session, run = await load_settled(self.services, agent, session_id)
        said: Message | None = None if message is None else {"role": "user", "content": message}
        return await self._resume(agent, session, run, said, began, deps=deps)

    async def retry(
        self, session_id: str, *, agent: Agent[Output] | str | None = None, deps: Any = None
    ) -> RunHandle[Output]:
        """Run the failed turn of a session again, from its last committed step: what was done is not done twice.

        The agent is found by its name unless it is given. The limits of the failed run hold again, counted anew. Raises
        `NotResumable` for a session that has not failed.
        """
        self._ensure_open()
        if agent is None:
            agent = (await self._session(session_id)).agent_type
        known = self.known(agent)
        session, run = await load_settled(self.services, known, session_id)
        metadata = retry_of(session, run)
        deps = await deps_for(known, session, deps, self._deps_factory)
        claim = await claim_turn(self.services, known, session_id, [], run_metadata=metadata, seen=Seen(session, run))
        return await self._start(known, claim, deps)

    async def get_handle(self, agent: Agent[Output] | str, session_id: str) -> RunHandle[Output] | None:
        """A handle on the latest run of a session, wherever it runs or ran; None if there is no such session."""
        agent = self.known(agent)
        try:
            session, run = await load(self.services, agent, session_id)
        except SessionNotFound:
            return None
        return self._handle(agent, session, run, None)

    # -- resources

    async def close(self) -> None:
        """Stop what runs here as a crash would, except that others need not wait for the leases to lapse.

        Nothing is started here any more after that; what only looks or steers goes on working.
        """
        self._closed = True
        await asyncio.sleep(0)  # a run that was begun this very moment must run to be able to stop
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- how

    async def _resume(
        self,
        agent: Agent,
        session: SessionState,
        run: RunRecord | None,
        message: Message | None,
        began: int,
        run_id: str | None = None,
        *,
        deps: Any = None,
        run_metadata: Mapping[str, Json] | None = None,
    ) -> RunHandle:
        try:
            await ensure_resumable(self.services, session, run, message=message is not None)
            if session.status in SESSION_TERMINAL:
                assert run is not None
                await tidy_up(self.services, session, run)
                return self._handle(agent, session, run, None)
            deps = await deps_for(agent, session, deps, self._deps_factory)
            if run is not None and session.status == "active" and waits_for_worker(run):
                if message is not None:
                    raise AlreadyRunning(session.session_id, run.run_id)
                claim = await continue_run(self.services, session, run, metadata=run_metadata)
            else:
                claim = await claim_unfinished(
                    self.services, session, run, message=message, run_id=run_id, run_metadata=run_metadata
                )
        except (AlreadyRunning, NotResumable) as error:
            if self.services.clock() - began <= self.services.lease_ms:
                raise
            # This process stalled so long that another took over what it was about to take: no mere race.
            why = f"{REPLACED} while this one stalled"
            raise RunLost(session.session_id, run.run_id if run else "", why) from error
        return await self._start(agent, claim, deps)

    async def _take_up(self, agent: Agent, session_id: str, worker: str | None) -> RunHandle:
        began = self.services.clock()
        session, run = await load_settled(self.services, agent, session_id)
        noted: dict[str, Json] = {} if worker is None else {"worker": worker}
        return await self._resume(agent, session, run, None, began, run_metadata=noted)

    async def opened(self, agent: Agent, claim: Claim) -> Run:
        """A run of a claimed session, for somebody who drives it himself."""
        deps = await deps_for(agent, claim.session, None, self._deps_factory)
        return await open_run(self.services, agent, claim, self._children, deps=deps)

    async def _start(self, agent: Agent, claim: Claim, deps: Any) -> RunHandle:
        run = await open_run(self.services, agent, claim, self._children, deps=deps)
        task = asyncio.create_task(run.drive(), name=f"helix-{run.context.run_id}")
        self._tasks[task] = run
        task.add_done_callback(self._ended)
        return self._handle(agent, claim.session, claim.run, task)

    def _ended(self, task: asyncio.Task[AgentResult]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # a caller who never asks for the result shall not be told of it by the garbage collector

    def _handle(
        self, agent: Agent, session: SessionState, run: RunRecord | None, task: asyncio.Task[AgentResult] | None
    ) -> RunHandle:
        return RunHandle(
            self,
            agent,
            session_id=session.session_id,
            run_id=run.run_id if run else "",
            stream_id=session.stream_id,
            start_sequence=run.start_sequence if run else 0,
            task=task,
            goes_on=run is not None and ("submitted" in run.metadata or ENGINE in run.metadata),
        )

    def _ensure_open(self) -> None:
        if self._closed:
            raise InvalidArgument("This executor is closed and starts no more runs: make another.")

    def known(self, agent: Agent[Output] | str) -> Agent[Output]:
        """The agent of that name, or this one, which is known from now on."""
        if isinstance(agent, str):
            return self.agents.get(agent)
        if not isinstance(agent, Agent):
            raise InvalidArgument(f"An agent is an Agent or the name of one, not {type(agent).__name__}.")
        self.agents.add(agent)
        return agent


def _ensure_allowed(if_exists: str, if_running: str, idempotency_key: str | None) -> None:
    if if_exists not in get_args(IfExists):
        raise InvalidArgument(f"Invalid if_exists {if_exists!r}: expected one of {get_args(IfExists)}.")
    if if_running not in get_args(IfRunning):
        raise InvalidArgument(f"Invalid if_running {if_running!r}: expected one of {get_args(IfRunning)}.")
    if if_running == "enqueue" and idempotency_key is not None:
        raise InvalidArgument("if_running='enqueue' does not go with an idempotency_key: it may start no run.")
    if if_exists == "reject" and if_running != "reject":
        raise InvalidArgument("if_exists='reject' does not go with if_running: a new session is not running.")
