"""Agents on Temporal: one workflow per run, one activity per step, responses by signal.

    client = await Client.connect("localhost:7233")
    async with TemporalRuntime(executor, client) as runtime:    # a worker
        handle = await runtime.submit(agent, "Research this")   # also without the block, from any process

The history of a workflow holds tickets, nothing of the conversation, and is continued as new when it gets long. When a
worker dies or freezes, its heartbeat stops and Temporal gives the step to another one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self

from ..codec import Json
from ..executor import AgentExecutor, Ticket
from .engine import EngineRuntime, plain

try:
    from temporalio import activity, workflow
    from temporalio.client import Client, WorkflowExecutionStatus
    from temporalio.common import RetryPolicy
    from temporalio.exceptions import ApplicationError
    from temporalio.service import RPCError, RPCStatusCode
    from temporalio.worker import Worker
except ImportError as error:  # pragma: no cover
    raise ImportError("TemporalRuntime needs temporalio: pip install 'helix-agents[temporal]'.") from error

LONGEST_STEP = timedelta(days=1)
FIRST_RETRY = timedelta(milliseconds=200)
STICKY = timedelta(seconds=1)
"""How long a workflow waits for the worker that has it in memory before another worker may run it."""
BUILD = "helix-agents"
"""A fixed build id: Temporal would otherwise hash all code of the process. Our workflow changes only with this
package."""
HOPELESS = ["InvalidArgument", "StaleTicket", "SessionNotFound"]


@workflow.defn(name="helix_run", sandboxed=False)
class HelixRun:
    """Executes a run from its ticket until it stops; while the run waits for responses, the workflow waits for a
    signal."""

    def __init__(self) -> None:
        self._news: dict[str, Json] | None = None

    @workflow.signal
    def go_on(self, ticket: dict[str, Json]) -> None:
        """Accept a newer ticket after a response or a new message."""
        if self._news is None or ticket["version"] > self._news["version"]:
            self._news = ticket

    @workflow.run
    async def run(self, ticket: dict[str, Json], lease_seconds: float, look_again_seconds: float) -> dict[str, Json]:
        """Execute steps until the run has ended."""
        lease = timedelta(seconds=lease_seconds)
        while True:
            if self._news is not None and self._news["version"] > ticket["version"]:
                ticket = self._news
            self._news = None
            ticket = await workflow.execute_activity(
                "helix_step",
                ticket,
                start_to_close_timeout=LONGEST_STEP,
                heartbeat_timeout=lease,
                retry_policy=RetryPolicy(
                    initial_interval=FIRST_RETRY, maximum_interval=lease, non_retryable_error_types=HOPELESS
                ),
            )
            if self._news is not None:
                continue
            if str(ticket["status"]).startswith("suspended"):
                with suppress(TimeoutError):  # a response may arrive another way, or its deadline pass
                    await workflow.wait_condition(lambda: self._news is not None, timeout=look_again_seconds)
            elif ticket["status"] != "active":
                return ticket
            if self._news is None and workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[ticket, lease_seconds, look_again_seconds])


class TemporalRuntime(EngineRuntime):
    """Runs agents on Temporal. `async with` makes this process a worker of `task_queue`, for `at_once` concurrent
    steps.

    Leaving the block finishes the current steps; other workers continue the runs. `look_again_seconds`: how often a
    waiting run is checked in case a signal got lost.
    """

    def __init__(
        self,
        executor: AgentExecutor,
        client: Client,
        *,
        task_queue: str = "helix-agents",
        at_once: int = 100,
        look_again_seconds: float = 300,
    ) -> None:
        super().__init__(executor, "temporal")
        self._client = client
        self._queue = task_queue
        self._at_once = at_once
        self._look_again_seconds = look_again_seconds
        self._worker: Worker | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._worker = Worker(
            self._client,
            task_queue=self._queue,
            workflows=[HelixRun],
            activities=[self._step],
            build_id=BUILD,
            max_concurrent_activities=self._at_once,
            sticky_queue_schedule_to_start_timeout=STICKY,
            graceful_shutdown_timeout=LONGEST_STEP,
        )
        await self._worker.__aenter__()
        self._watching = asyncio.create_task(self.watch(), name="helix-temporal-watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._worker is not None:
            await self._worker.__aexit__(kind, error, trace)

    @activity.defn(name="helix_step")
    async def _step(self, ticket: dict[str, Json]) -> dict[str, Json]:
        if not self.knows(ticket):
            raise ApplicationError(f"This worker does not know agent {ticket['agent_type']!r}.", type="UnknownAgent")
        working = asyncio.create_task(self.advance(ticket))
        try:
            while not (await asyncio.wait({working}, timeout=self._services.lease_seconds / 3))[0]:
                activity.heartbeat()
            return working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _begin(self, ticket: Ticket, *, anew: bool) -> None:
        kept = plain(ticket)
        lease_seconds = self._services.lease_seconds
        await self._client.start_workflow(
            HelixRun.run,
            args=[kept, lease_seconds, self._look_again_seconds],
            id=self._name(ticket),
            task_queue=self._queue,
            task_timeout=timedelta(seconds=max(1.0, min(10.0, lease_seconds))),
            start_signal="go_on",
            start_signal_args=[kept],
        )

    async def _rescue(self, ticket: Ticket) -> bool:
        try:
            status = (await self._client.get_workflow_handle(self._name(ticket)).describe()).status
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            status = WorkflowExecutionStatus.COMPLETED  # it was never started
        goes_on = status in (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.RUNNING)
        if goes_on:
            await self._begin(ticket, anew=True)  # it may wait for a signal whose sender died
        return goes_on

    def _name(self, ticket: Ticket) -> str:
        return f"{self._queue}/{ticket.session_id}"
