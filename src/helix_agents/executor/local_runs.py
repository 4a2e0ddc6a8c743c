"""LocalRuns: drives the runs of this process, from a claim to a handle. Does not decide what may be claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..agent import Agent, AgentRegistry, Output
from ..errors import HelixError, InvalidArgument
from ..lifecycle import SUSPENDED
from ..types import RunRecord, SessionState
from .children import SubAgents
from .handle import AgentResult, RunHandle, Steering
from .opening import open_run
from .run.dependencies import DepsFactory, deps_for
from .run.loop import Run
from .services import Services
from .session.claim import Claim


class LocalRuns:
    """Starts and stops runs in this process."""

    def __init__(
        self, services: Services, agents: AgentRegistry, steering: Steering, deps_factory: DepsFactory | None
    ) -> None:
        self.services = services
        self.agents = agents
        self._steering = steering
        self._deps_factory = deps_factory
        self.handle_type: type[RunHandle] = RunHandle
        self._children = SubAgents(services)
        self._tasks: dict[asyncio.Task[AgentResult], Run] = {}
        self._timers: set[asyncio.Task[None]] = set()
        self._closed = False

    def ensure_open(self) -> None:
        """Raise `InvalidArgument` if no more runs may start here."""
        if self._closed:
            raise InvalidArgument("This executor is closed and starts no more runs: create another.")

    def known(self, agent: Agent[Output] | str) -> Agent[Output]:
        """Return the agent of that name, or register and return this agent."""
        if isinstance(agent, str):
            return self.agents.get(agent)
        if not isinstance(agent, Agent):
            raise InvalidArgument(f"agent must be an Agent or the name of one, not {type(agent).__name__}.")
        self.agents.add(agent)
        return agent

    async def deps_for(self, agent: Agent, session: SessionState, given: Any = None) -> Any:
        """Return the dependencies for the tools of a run of this session."""
        return await deps_for(agent, session, given, self._deps_factory)

    async def open(self, agent: Agent, claim: Claim, deps: Any = None) -> Run:
        """Open a run of a claimed session for a caller that drives it step by step."""
        return await open_run(self.services, agent, claim, self._children, deps=deps)

    async def start(self, agent: Agent, claim: Claim, deps: Any, *, key: bool = False) -> RunHandle:
        """Drive a claimed session in its own task."""
        run = await self.open(agent, claim, deps)
        task = asyncio.create_task(run.drive(), name=f"helix-{run.context.run_id}")
        self._tasks[task] = run
        task.add_done_callback(self._ended)
        return self.handle(agent, claim.session, claim.run, task, continues=key)

    def task_of(self, run_id: str) -> asyncio.Task[AgentResult] | None:
        """Return the task that drives a run in this process; None if there is none."""
        return next((task for task, run in self._tasks.items() if run.context.run_id == run_id), None)

    def handle(
        self,
        agent: Agent,
        session: SessionState,
        run: RunRecord | None,
        task: asyncio.Task[AgentResult] | None = None,
        *,
        continues: bool = False,
    ) -> RunHandle:
        """Return a handle on a run, wherever it runs. `continues`: take it over if its process dies."""
        if task is None and run is not None:
            task = self.task_of(run.run_id)
        return self.handle_type(
            self._steering,
            agent,
            session_id=session.session_id,
            run_id=run.run_id if run else "",
            stream_id=session.stream_id,
            start_sequence=run.start_sequence if run else 0,
            task=task,
            continues=continues,
        )

    def count(self, user_id: str | None = None) -> int:
        """Return how many runs this process drives; `user_id`: only those in this user's sessions."""
        sessions = (run.context.owned.session for run in self._tasks.values())
        return sum(user_id is None or session.user_id == user_id for session in sessions)

    def request_stop(self, run_id: str | None, reason: str | None, *, abort: bool) -> None:
        """Stop a run of this process without waiting until it polls its flag."""
        for run in self._tasks.values():
            if run.context.run_id == run_id:
                run.context.stop.request(reason, abort=abort)

    async def hand_over(self, handles: Iterable[RunHandle[Any]] | None = None) -> None:
        """Finish the current steps of these runs, or of all runs here, and release them to other processes."""
        chosen = None if handles is None else {handle.run_id for handle in handles}
        tasks = [task for task, run in self._tasks.items() if chosen is None or run.context.run_id in chosen]
        for task in tasks:
            self._tasks[task].hand_over()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop all runs here as a crash would, except that other processes need not wait for the leases."""
        self._closed = True
        await asyncio.sleep(0)  # a task that was just created must start before it can clean up
        tasks = [*self._tasks, *self._timers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[AgentResult]) -> None:
        run = self._tasks.pop(task)
        session = run.context.owned.session
        if session.wake_at is not None and session.status in SUSPENDED and session.parent_session_id is None:
            self._wake_later(run.context.agent, session)
        if not task.cancelled():
            task.exception()  # Retrieve it, so asyncio does not log 'exception was never retrieved'.

    def _wake_later(self, agent: Agent, session: SessionState) -> None:
        """Continue a session when its timer is due, unless a worker does so first."""

        async def wake() -> None:
            seconds = max(0, (session.wake_at or 0) - self.services.clock()) / 1000
            await asyncio.sleep(seconds)
            with suppress(HelixError):
                await self._steering.resume(agent, session.session_id)

        task = asyncio.create_task(wake(), name=f"helix-timer-{session.session_id}")
        self._timers.add(task)
        task.add_done_callback(self._timers.discard)
