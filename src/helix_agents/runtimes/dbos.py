"""Agents on DBOS: one workflow per run and one DBOS step per step, in the same process, on SQLite or Postgres.

    async with DBOSRuntime(executor, {"name": "agents", "system_database_url": "postgresql://..."}) as runtime:
        handle = await runtime.submit(agent, "Research this")

DBOS continues the workflows of a dead process when that process restarts; if it does not, an expired lease lets another
process continue them. A workflow ends when its run stops: a response starts the next one, so nothing waits in a
process.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from ..codec import Json
from ..errors import InvalidArgument, StoreUnavailable
from ..executor import AgentExecutor, Ticket
from ..retry import ENGINE
from .engine import EngineRuntime, plain

try:
    from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowStatus, error
except ImportError as missing:  # pragma: no cover
    raise ImportError("DBOSRuntime needs dbos: pip install 'helix-agents[dbos]'.") from missing


class DBOSRuntime(EngineRuntime):
    """Runs agents on DBOS in this process. Only one at a time, because a process has one DBOS.

    `config`: launch DBOS with this, and shut it down at the end. Without it, the application manages DBOS: enter this
    runtime before `DBOS.launch()`, which must be called in the event loop. Give each process its own `executor_id`.
    """

    _current: DBOSRuntime | None = None

    def __init__(self, executor: AgentExecutor, config: DBOSConfig | None = None) -> None:
        super().__init__(executor, "dbos")
        self._config = config
        self._at_work: dict[str, asyncio.Event] = {}
        self._stopping = False
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if DBOSRuntime._current is not None:
            raise InvalidArgument("This process already has a DBOSRuntime, and DBOS allows only one.")
        DBOSRuntime._current = self
        if self._config is not None:
            try:
                DBOS(config=self._config)
                DBOS.launch()
            except BaseException:
                DBOSRuntime._current = None
                raise
        self._watching = asyncio.create_task(self.watch(), name="helix-dbos-watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._stopping = True
        left = list(self._at_work)
        await asyncio.gather(*(ended.wait() for ended in list(self._at_work.values())))
        if left:
            await DBOS.resume_workflows_async(left)  # ended runs stay ended; any process may take the others
        if self._config is not None:
            threads = ThreadPoolExecutor()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(threads, DBOS.destroy)
            loop.set_default_executor(threads)  # DBOS has put its own there, which is shut down now
        DBOSRuntime._current = None

    async def run(self, ticket: dict[str, Json]) -> dict[str, Json]:
        """Execute steps until the run stops."""
        name = DBOS.workflow_id or ""
        ended = self._at_work[name] = asyncio.Event()
        try:
            while True:
                if self._stopping or not self.knows(ticket):
                    raise error.DBOSWorkflowConflictIDError(name)  # not an outcome: another process continues the run
                ticket = await helix_step(ticket)
                if ticket["status"] != "active":
                    return ticket
        finally:
            ended.set()
            del self._at_work[name]

    async def _begin(self, ticket: Ticket, *, anew: bool) -> None:
        if anew or not _goes_on(await self._latest(ticket)):
            with SetWorkflowID(f"{_prefix(ticket)}{ticket.version}"):
                await DBOS.start_workflow_async(helix_run, plain(ticket))

    async def _rescue(self, ticket: Ticket) -> bool:
        latest = await self._latest(ticket)
        if latest is None or latest.status == "SUCCESS":
            await self._begin(ticket, anew=True)
        elif latest.status == "PENDING" and latest.workflow_id not in self._at_work:
            await DBOS.resume_workflow_async(latest.workflow_id)
        return latest is None or latest.status == "SUCCESS" or _goes_on(latest)

    async def _latest(self, ticket: Ticket) -> WorkflowStatus | None:
        found = await DBOS.list_workflows_async(
            workflow_id_prefix=_prefix(ticket), sort_desc=True, limit=1, load_input=False, load_output=False
        )
        return found[0] if found else None


def _prefix(ticket: Ticket) -> str:
    """Return the prefix of the names of a session's workflows; unique, because ids have no braces."""
    return f"helix:{{{ticket.session_id}}}:"


def _goes_on(workflow: WorkflowStatus | None) -> bool:
    return workflow is not None and workflow.status in ("PENDING", "ENQUEUED", "DELAYED")


def _here() -> DBOSRuntime:
    if DBOSRuntime._current is None:
        raise error.DBOSWorkflowConflictIDError(DBOS.workflow_id or "")
    return DBOSRuntime._current


@DBOS.workflow(name="helix_run")
async def helix_run(ticket: dict[str, Json]) -> dict[str, Json]:
    """Execute a run from its ticket until it stops."""
    return await _here().run(ticket)


@DBOS.step(
    name="helix_step",
    retries_allowed=True,
    max_attempts=ENGINE.tries,
    interval_seconds=ENGINE.first_seconds,
    backoff_rate=1.0,
    should_retry=lambda raised: isinstance(raised, StoreUnavailable),
)
async def helix_step(ticket: dict[str, Json]) -> dict[str, Json]:
    """Execute one step of a run."""
    return await _here().advance(ticket)
