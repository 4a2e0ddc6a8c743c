"""Agents by Cloudflare Workflows: an instance for each turn, a Workflow step for each step, answers by event.

    def new_executor(env):
        return CloudflareAgentExecutor(
            workflow_binding=env.AGENT_WORKFLOW,
            state_store=D1StateStore(env.DB),
            stream_manager=DurableObjectStreamManager(env.STREAMS),
            agents=[assistant],
        )

An instance stores tickets, nothing of the conversation. Make an executor for each request, as you do with stores.
What an instance does is in `agent_workflow.py`. Imported only inside a Worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Unpack

import msgspec
from pyodide.ffi import JsException

from ...agent import Agent, Output
from ...backends.cloudflare import fetching
from ...backends.cloudflare.bindings import ensure_binding, js_options
from ...codec import Json, encode
from ...errors import HelixError, InvalidArgument, StoreUnavailable
from ...executor import (
    AgentExecutor,
    Completion,
    ExecuteOptions,
    Input,
    Request,
    RunHandle,
    Standing,
    SubmitOptions,
    Ticket,
    ToolResultReceipt,
    all_waiting,
    find,
)
from ...executor.workers import due_sessions
from ...llm.contract import LLM
from ...safe_text import get_logger
from ...stores.state.contract import StateStore
from ...streams.contract import StreamManager
from ..engine import EngineRuntime, plain

logger = get_logger("helix_agents.runtimes")

ENGINE = "cloudflare"
ANSWER = "answer"
"""The type of the event that lets a waiting instance continue. Its payload is a ticket."""
WAKE = "wake"
"""The type of an event for which no instance waits: it only starts an engine that stopped with its process."""
STEPS_PER_INSTANCE = 250
"""How many steps of a run an instance does before its successor continues: Workflows limits the steps of each."""
OVER = frozenset({"complete", "errored", "terminated", "unknown"})
GIVEN_UP = frozenset({"errored", "terminated"})
LONGEST_WAIT_MS = 24 * 3_600_000
AFTER_DEADLINE_MS = 200


class WorkflowsRuntime(EngineRuntime):
    """Creates instances, sends them answers, and finds runs that they lost."""

    def __init__(self, executor: AgentExecutor, workflow: Any, *, steps_per_instance: int = STEPS_PER_INSTANCE) -> None:
        super().__init__(executor, ENGINE)
        self._steps_per_instance = steps_per_instance
        self._workflow = ensure_binding(
            workflow,
            "create",
            "get",
            is_not="a Workflow binding",
            hint='Pass env.AGENT_WORKFLOW, and name the class under "workflows" in wrangler.jsonc.',
        )

    # -- for an instance

    async def advance(self, kept: dict[str, Json]) -> dict[str, Json]:
        """Do the next step of a run and return the ticket to keep. A run that waited continues if it can.

        A run that was interrupted while it waited stays so until it is resumed.
        """
        if kept["status"] != "active":
            found = await find(self._services, str(kept["session_id"]))
            if found.seen.standing is Standing.STOPPED:
                return {**kept, "status": found.existing.status}
        return await super().advance(kept)

    async def wait_ms(self, kept: dict[str, Json]) -> int:
        """Return how long a suspended run may rely on an event: at most until the next deadline of its questions."""
        session = None
        if str(kept["status"]).startswith("suspended"):
            session = await self._services.store.load_state(str(kept["session_id"]))
        if session is None:
            return LONGEST_WAIT_MS
        now = self._services.clock()
        waits = await all_waiting(self._services.store, session, now)
        deadlines = [wait.deadline_at - now + AFTER_DEADLINE_MS for wait in waits if wait.deadline_at is not None]
        return max(1, min([LONGEST_WAIT_MS, *deadlines]))

    def part_of(self, kept: Ticket | dict[str, Json]) -> int:
        """Return which of the successive instances of a run has the step that a ticket is at."""
        ticket = msgspec.convert(kept, Ticket)
        return (ticket.steps - ticket.first_step) // self._steps_per_instance

    async def succeed(self, kept: dict[str, Json]) -> None:
        """Let the successor of an instance continue its run."""
        ticket = msgspec.convert(kept, Ticket)
        await self._create((await self._instances(ticket))[-1], ticket)

    # -- for other callers

    async def start(self, request: Request) -> RunHandle:
        """Store the run of a request, and let an instance execute it."""
        handle = await self._executor.starter.start(request, released=True, engine=ENGINE)
        ticket = await self._stepper.look(request.agent, handle.session_id)
        if not ticket.done:
            await self._begin(ticket, anew=request.key is None)
        return handle

    async def rescue(self) -> None:
        """Continue stalled runs. For a cron trigger: nothing else notices a request that died."""
        await self._rescue_all()

    async def look_after(self, session_id: str) -> None:
        """Wake the instance of a stalled run, or create it if the request that should have done so died.

        Cloudflare continues instances by itself; an engine on a developer's machine only when it gets an event.
        """
        found = await find(self._services, session_id)
        if found.session is None or found.seen.engine != ENGINE:
            return
        idle = found.session.updated_at + self._services.lease_ms <= self._services.clock()
        if found.seen.standing is Standing.LEASE_EXPIRED or (found.seen.standing is Standing.RELEASED and idle):
            await self._rescue(await self._stepper.look(found.session.agent_type, session_id))

    async def _begin(self, ticket: Ticket, *, anew: bool) -> None:
        *earlier, own = await self._instances(ticket)
        for name in reversed(earlier):
            if await self._status(name) not in OVER and await self._send(name, ANSWER, ticket):
                return
        await self._create(own, ticket)

    async def _rescue(self, ticket: Ticket) -> bool:
        """Wake an instance of the turn; create one if there is none. Return False if the engine has given up the run.

        An instance that was created for an earlier run of the turn may still wait for the answer that continued it: the
        request that should have sent it died. An answer for which no instance waits is harmless.
        """
        names = await self._instances(ticket)
        for name in names:
            status = await self._status(name)
            if status not in OVER:
                return await self._send(name, WAKE if name == names[-1] else ANSWER, ticket)
            if name == names[-1] and status in GIVEN_UP:
                return False
        await self._create(names[-1], ticket)
        return True

    async def _instances(self, ticket: Ticket) -> list[str]:
        """Return the names of the instances that may have a run: of the runs that it continues, then its own."""
        resumed = {run.run_id: run.resumes for run in await self._services.store.list_runs(ticket.session_id)}
        names, run_id = [], ticket.run_id
        while run_id:
            names.append(instance_name(run_id, self.part_of(ticket)))
            run_id = resumed.get(run_id) or ""
        return names[::-1]

    async def _create(self, name: str, ticket: Ticket) -> None:
        try:
            await self._workflow.create(js_options({"id": name, "params": {"ticket": encode(plain(ticket))}}))
        except JsException as error:
            if "exist" in str(error):  # another process has created it
                return
            raise StoreUnavailable(f"Cannot create the Workflow instance of a run: {error}. Try again.") from error

    async def _send(self, name: str, kind: str, ticket: Ticket) -> bool:
        """Send an event to an instance. False if it does not accept it."""
        try:
            instance = await self._workflow.get(name)
            await instance.sendEvent(js_options({"type": kind, "payload": {"ticket": encode(plain(ticket))}}))
        except JsException as error:
            logger.warning("Workflow instance %s did not accept an event: %s", name, error)
            return False
        return True

    async def _status(self, name: str) -> str:
        try:
            return str((await (await self._workflow.get(name)).status()).status)
        except JsException:
            return "unknown"  # there is no such instance


class WorkflowHandle(RunHandle[Output]):
    """A handle that wakes the instance of its run if the run has stalled."""

    _looked_at = 0

    async def _lost(self, found: Any) -> Any:
        services, steering = self._services, self._steering
        if isinstance(steering, CloudflareAgentExecutor) and found.read_at - self._looked_at >= services.lease_ms:
            self._looked_at = found.read_at
            with suppress(HelixError):  # the next caller tries again
                await steering.runtime.look_after(self.session_id)
        return await super()._lost(found)


class CloudflareAgentExecutor(AgentExecutor):
    """An executor whose runs are instances of a Workflow. Takes what `AgentExecutor` takes, and the binding.

    `execute` and `submit` store the run and create its instance; `resume`, `retry`, `regenerate`, `edit` and
    `submit_tool_result` let an instance continue. Nothing runs in the request itself, so `deps` cannot be passed: use
    `deps_factory`. `steps_per_instance`: after so many steps an instance lets its successor continue.
    """

    def __init__(
        self,
        *,
        workflow_binding: Any,
        state_store: StateStore,
        stream_manager: StreamManager,
        llm: LLM | None = None,
        agents: Iterable[Agent] = (),
        poll_seconds: float = 1.0,
        steps_per_instance: int = STEPS_PER_INSTANCE,
        **options: Any,
    ) -> None:
        agents = list(agents)
        model = llm or _model_of(agents)
        super().__init__(state_store, stream_manager, model, agents=agents, poll_seconds=poll_seconds, **options)
        self._outbox.post = fetching.post
        self.runs.handle_type = WorkflowHandle
        self.runtime = WorkflowsRuntime(self, workflow_binding, steps_per_instance=steps_per_instance)

    async def execute(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> RunHandle[Output]:
        """Store a run and create its instance. Takes what `AgentExecutor.execute` takes, except `deps`."""
        _ensure_no_deps(options.pop("deps", None))
        return await self.runtime.submit(agent, input, **options)

    async def submit(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[SubmitOptions]
    ) -> RunHandle[Output]:
        """Do what `execute` does: an instance is a worker."""
        return await self.runtime.submit(agent, input, **options)

    async def resume(
        self,
        agent: Agent[Output] | str,
        session_id: str,
        *,
        message: str | None = None,
        deps: Any = None,
        user_id: str | None = None,
    ) -> RunHandle[Output]:
        """Let an instance continue a session that was interrupted, has stalled, or has all its responses."""
        _ensure_no_deps(deps)
        if message is not None:
            return await self.runtime.submit(agent, message, session_id=session_id, user_id=user_id)
        return await self.runtime.resume(agent, session_id, user_id=user_id)

    async def retry(
        self,
        session_id: str,
        *,
        agent: Agent[Output] | str | None = None,
        deps: Any = None,
        user_id: str | None = None,
    ) -> RunHandle[Output]:
        """Let an instance run the failed turn of a session again, from its last committed step."""
        _ensure_no_deps(deps)
        return await self.runtime.retry(session_id, agent=agent, user_id=user_id)

    async def abort(self, session_id: str, reason: str | None = None, *, user_id: str | None = None) -> None:
        """Do what `AgentExecutor.abort` does; an instance undoes what the turn did."""
        await super().abort(session_id, reason, user_id=user_id)
        await self.runtime.answered(session_id)  # a run that waited; an instance at work reads the request itself

    async def submit_tool_result(
        self, session_id: str, tool_call_id: str | None = None, **answer: Any
    ) -> ToolResultReceipt:
        """Respond to a question. With the last answer the waiting instance continues."""
        receipt = await super().submit_tool_result(session_id, tool_call_id, **answer)
        await self.runtime.answered(receipt.session_id)
        return receipt

    async def complete_deferred(self, token: str, *, result: Json = ..., error: str | None = None) -> Completion:
        """Complete a deferred call. With the last answer the waiting instance continues."""
        completion = await super().complete_deferred(token, result=result, error=error)
        if completion.session is not None:
            await self.runtime.answered(completion.session.session_id)
        return completion

    async def recover(self, *, limit: int = 100) -> list[RunHandle]:
        """Continue stalled runs, start scheduled ones and send the events that are due, for a cron trigger.

        Returns no handles, because nothing runs here.
        """
        await self.runtime.rescue()
        agents = [agent.name for agent in self.agents]
        others = [name for name in self.recovery.types(agents) if name not in agents]
        async for session in due_sessions(self.services, others):
            await self.recovery.pick_up(session)
        await self.settle()
        return []

    async def settle(self) -> None:
        """Wait for the webhooks of runs that have ended here: what is not done when an instance ends is lost."""
        await self._outbox.settle()

    async def _start_branch(self, request: Request) -> RunHandle:
        _ensure_no_deps(request.deps)
        return await self.runtime.start(request)

    async def _announce_work(self) -> None:
        """Do nothing: instances do the work, and no workers listen."""


def _model_of(agents: list[Agent]) -> LLM:
    """Return a model for agents that have their own; raise `InvalidArgument` if one of them has none."""
    without = [agent.name for agent in agents if agent.llm is None]
    if without or not agents:
        names = ", ".join(without) or "no agents are given"
        raise InvalidArgument(f"Agents without a model: {names}. Pass llm=..., or Agent(llm=...).")
    model = agents[0].llm
    assert model is not None
    return model


def _ensure_no_deps(deps: Any) -> None:
    if deps is not None:
        raise InvalidArgument("deps cannot reach a Workflow: give the executor a deps_factory.")


def instance_name(run_id: str, part: int = 0) -> str:
    """Return the name of a run's instance: run ids may be longer, and hold characters that Workflows rejects."""
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    return f"run-{digest}-{part}"
