"""WorkerPool: workers that need only the stores. Sessions are the queue, leases mark owners, a stream wakes idle
workers.

A pool picks up runs that were submitted or handed over, and runs whose process died, up to `at_once`. It scans when
`wakeup.py` wakes it, when one of its runs ends, and when a lease may have expired. If a worker dies, others pick up its
runs once their leases expire.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from ...agent import AgentRegistry
from ...clock import random_id
from ...errors import HelixError, InvalidArgument
from ...safe_text import get_logger
from ...streams.contract import StreamManager
from ...types import SessionState
from ..handle import RunHandle
from ..later.schedules import SCHEDULE
from ..services import Services
from .claimable import Recovery, due_sessions
from .wakeup import listen, wake_workers

logger = get_logger("helix_agents.executor")

MAX_UNKNOWN_CHECKED = 200
WORKERS = "helix/workers/alive"
"""The stream of worker heartbeats."""
HEARTBEAT_SECONDS = 10.0
HEARTBEATS_READ = 500


class WorkerInfo(msgspec.Struct, frozen=True):
    """The last heartbeat of a worker."""

    name: str
    at_once: int
    running: int
    seen_at: int


class PoolExecutor(Protocol):
    """The parts of an executor that a pool uses."""

    @property
    def services(self) -> Services: ...

    @property
    def agents(self) -> AgentRegistry: ...

    @property
    def recovery(self) -> Recovery: ...

    async def hand_over(self, handles: Iterable[RunHandle[Any]] | None = None) -> None: ...


class WorkerPool:
    """Executes submitted runs in this process: `async with WorkerPool(executor, at_once=8): ...`.

    Leaving the block finishes the steps in progress and hands the rest over to other workers.

    `per_agent`, `per_user`: limits on concurrent runs of one agent or one user in this pool. `name`: identifies the
    pool in run records and `list_workers`.
    """

    def __init__(
        self,
        executor: PoolExecutor,
        *,
        at_once: int = 8,
        per_agent: int | None = None,
        per_user: int | None = None,
        name: str | None = None,
    ) -> None:
        for what, limit in (("at_once", at_once), ("per_agent", per_agent), ("per_user", per_user)):
            if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
                raise InvalidArgument(f"{what} must be a positive integer, not {limit!r}.")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{random_id()[:4]}"
        self._executor = executor
        self._services = executor.services
        self._at_once = at_once
        self._per_agent = per_agent
        self._per_user = per_user
        self._active: dict[str, tuple[SessionState, asyncio.Task[None]]] = {}
        self._handles: dict[str, RunHandle] = {}
        self._stopping = False
        self._wake = asyncio.Event()
        self._scanned = asyncio.Condition()
        self._idle = False
        self._unknown_agents: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def running(self) -> int:
        """How many sessions this pool is working on."""
        return len(self._active)

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise InvalidArgument("This pool is already running: create another one.")
        streams = self._services.streams
        self._tasks = [
            asyncio.create_task(listen(streams, self._wake.set), name=f"helix-wakeup-{self.name}"),
            asyncio.create_task(self._work(), name=f"helix-pool-{self.name}"),
            asyncio.create_task(self._write_heartbeats(), name=f"helix-heartbeat-{self.name}"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._stopping = True
        had_active = bool(self._active)
        await self._executor.hand_over(list(self._handles.values()))
        await asyncio.gather(*(task for _, task in self._active.values()), return_exceptions=True)
        if had_active:
            await wake_workers(self._services.streams)

    async def run_until_idle(self) -> None:
        """Wait until this pool has nothing left to do."""
        self._idle = False
        self._wake.set()
        async with self._scanned:
            await self._scanned.wait_for(lambda: self._idle)

    # -- internals

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            try:
                found = await self._start_due_sessions()
            except HelixError as error:
                logger.warning("Worker %s could not scan for work: %s", self.name, error)
                found = True
            async with self._scanned:
                self._idle = not found and not self._active and not self._wake.is_set()
                self._scanned.notify_all()
            try:
                async with asyncio.timeout(await self._seconds_to_next()):
                    await self._wake.wait()
            except TimeoutError:
                with suppress(HelixError):
                    await self._warn_about_unknown_agents()

    async def _seconds_to_next(self) -> float:
        """Return the seconds until the next session is due, at most half a lease: new work wakes the pool anyway."""
        longest, now = self._services.lease_seconds / 2, self._services.clock()
        try:
            due_at = await self._services.store.next_due(now)
        except HelixError:
            return longest
        return longest if due_at is None else min(longest, max(0, due_at - now) / 1000)

    async def _start_due_sessions(self) -> bool:
        """Start as many due sessions as the limits allow; return whether any are for this pool."""
        names = self._executor.recovery.types(agent.name for agent in self._executor.agents)
        has_work = bool(self._active)
        async with aclosing(due_sessions(self._services, names)) as due:
            async for session in due:
                if len(self._active) >= self._at_once:
                    return True
                if not self._executor.recovery.may_take(session):
                    continue
                has_work = True
                if session.session_id in self._active or not self._has_room(session):
                    continue
                task = asyncio.create_task(self._execute(session), name=f"helix-work-{session.session_id}")
                self._active[session.session_id] = (session, task)
        return has_work

    def _has_room(self, session: SessionState) -> bool:
        others = [other for other, _ in self._active.values()]
        agents, users = Counter(each.agent_type for each in others), Counter(each.user_id for each in others)
        if self._per_agent is not None and agents[session.agent_type] >= self._per_agent:
            return False
        return self._per_user is None or session.user_id is None or users[session.user_id] < self._per_user

    async def _execute(self, session: SessionState) -> None:
        session_id = session.session_id
        try:
            handle = await self._executor.recovery.pick_up(session, worker=self.name)
            if isinstance(handle, RunHandle):
                self._handles[session_id] = handle
                if self._stopping:
                    await self._executor.hand_over([handle])
                await handle.stopped_here()
            elif not handle:
                await asyncio.sleep(self._services.poll_seconds)  # another process is faster, or it failed for now
        except HelixError as error:
            logger.warning("Worker %s lost session %s: %s", self.name, session_id, error)
        finally:
            self._handles.pop(session_id, None)
            self._active.pop(session_id, None)
            self._wake.set()

    async def _warn_about_unknown_agents(self) -> None:
        """Log a warning once for each agent that has due sessions but is not registered here."""
        known = [agent.name for agent in self._executor.agents]
        for session in await self._services.store.list_claimable(self._services.clock(), limit=MAX_UNKNOWN_CHECKED):
            name = session.agent_type.removeprefix(f"{SCHEDULE}/")
            if name not in (*self._executor.recovery.types(()), *known) and name not in self._unknown_agents:
                self._unknown_agents.add(name)
                logger.warning("Runs of agent %s are due, but worker %s does not know that agent.", name, self.name)

    async def _write_heartbeats(self) -> None:
        while True:
            try:
                async with await self._services.streams.create_writer(WORKERS, self.name, "worker") as writer:
                    info = WorkerInfo(self.name, self._at_once, self.running, self._services.clock())
                    data = msgspec.to_builtins(info)
                    await writer.write({"type": "custom", "name": "worker", "data": data, "step": 0})
            except HelixError as error:
                logger.warning("Worker %s could not write its heartbeat: %s", self.name, error)
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def list_workers(streams: StreamManager, now: int) -> list[WorkerInfo]:
    """Return the workers with a heartbeat during the last three intervals, by name."""
    info = await streams.get_stream_info(WORKERS)
    if info is None or info.latest_sequence < info.first_sequence:
        return []
    start = max(info.first_sequence - 1, info.latest_sequence - HEARTBEATS_READ)
    reader = await streams.create_resumable_reader(WORKERS, from_sequence=start)
    found: dict[str, WorkerInfo] = {}
    if reader is None:
        return []
    try:
        async for stored in reader.stored():
            worker = msgspec.convert(stored.chunk["data"], WorkerInfo)
            found[worker.name] = worker
            if stored.sequence >= info.latest_sequence:
                break
    finally:
        await reader.close()
    oldest = now - int(3 * HEARTBEAT_SECONDS * 1000)
    return [found[name] for name in sorted(found) if found[name].seen_at >= oldest]
