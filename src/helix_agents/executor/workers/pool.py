"""WorkerPool: workers on nothing but the stores. Sessions are the queue, leases say who works, a stream wakes the idle.

A pool takes up runs that were submitted or handed over, and those whose process died, up to `at_once`. It looks when
the bell rings (`bell.py`), when one of its runs ends, and now and then for leases that have lapsed. A worker that dies
costs its lease: others find its runs.
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
from .wakeup import listen, ring

logger = get_logger("helix_agents.executor")

LOOKED_AT = 200
WORKERS = "helix/workers/alive"
"""The stream in which workers say that they are there."""
HEARTBEAT_SECONDS = 10.0
HEARTBEATS_READ = 500


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker as it described itself last."""

    name: str
    at_once: int
    running: int
    seen_at: int


class PoolExecutor(Protocol):
    """What a pool needs of its executor."""

    @property
    def services(self) -> Services: ...

    @property
    def agents(self) -> AgentRegistry: ...

    @property
    def recovery(self) -> Recovery: ...

    async def hand_over(self, handles: Iterable[RunHandle[Any]] | None = None) -> None: ...


class WorkerPool:
    """Executes what others submit, in this process: `async with WorkerPool(executor, at_once=8): ...`.

    Leaving the block finishes the steps that are being worked on and hands the rest over to other workers.
    `per_agent`, `per_user`: at most so many at once of one agent, or of one user, in this pool. `name`: what run
    records and `list_workers` call it.
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
        self._at_work: dict[str, tuple[SessionState, asyncio.Task[None]]] = {}
        self._handles: dict[str, RunHandle] = {}
        self._stopping = False
        self._bell = asyncio.Event()
        self._looked = asyncio.Condition()
        self._idle = False
        self._strangers: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def running(self) -> int:
        """How many runs this pool works on."""
        return len(self._at_work)

    async def __aenter__(self) -> Self:
        if self._tasks:
            raise InvalidArgument("This pool is at work already: make another one.")
        streams = self._services.streams
        self._tasks = [
            asyncio.create_task(listen(streams, self._bell.set), name=f"helix-bell-{self.name}"),
            asyncio.create_task(self._work(), name=f"helix-pool-{self.name}"),
            asyncio.create_task(self._beat(), name=f"helix-heartbeat-{self.name}"),
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
        left = bool(self._at_work)
        await self._executor.hand_over(list(self._handles.values()))
        await asyncio.gather(*(task for _, task in self._at_work.values()), return_exceptions=True)
        if left:
            await ring(self._services.streams)

    async def run_until_idle(self) -> None:
        """Wait until there is nothing left to do for this pool."""
        self._idle = False
        self._bell.set()
        async with self._looked:
            await self._looked.wait_for(lambda: self._idle)

    # -- how

    async def _work(self) -> None:
        while True:
            self._bell.clear()
            try:
                found = await self._take_what_fits()
            except HelixError as error:
                logger.warning("Worker %s cannot look for work now: %s", self.name, error)
                found = True
            async with self._looked:
                self._idle = not found and not self._at_work and not self._bell.is_set()
                self._looked.notify_all()
            try:
                async with asyncio.timeout(await self._seconds_to_next()):
                    await self._bell.wait()
            except TimeoutError:
                with suppress(HelixError):
                    await self._tell_of_strangers()

    async def _seconds_to_next(self) -> float:
        """Return how long nothing becomes due, at most half a lease: new work rings the bell."""
        longest, now = self._services.lease_seconds / 2, self._services.clock()
        try:
            due_at = await self._services.store.next_due(now)
        except HelixError:
            return longest
        return longest if due_at is None else min(longest, max(0, due_at - now) / 1000)

    async def _take_what_fits(self) -> bool:
        """Start to work on as many sessions as there is room for; return whether there are any for this pool."""
        names = self._executor.recovery.types(agent.name for agent in self._executor.agents)
        some = bool(self._at_work)
        async with aclosing(due_sessions(self._services, names)) as due:
            async for session in due:
                if len(self._at_work) >= self._at_once:
                    return True
                if not self._executor.recovery.may_take(session):
                    continue
                some = True
                if session.session_id in self._at_work or not self._has_room(session):
                    continue
                task = asyncio.create_task(self._work_on(session), name=f"helix-work-{session.session_id}")
                self._at_work[session.session_id] = (session, task)
        return some

    def _has_room(self, session: SessionState) -> bool:
        others = [other for other, _ in self._at_work.values()]
        agents, users = Counter(each.agent_type for each in others), Counter(each.user_id for each in others)
        if self._per_agent is not None and agents[session.agent_type] >= self._per_agent:
            return False
        return self._per_user is None or session.user_id is None or users[session.user_id] < self._per_user

    async def _work_on(self, session: SessionState) -> None:
        session_id = session.session_id
        try:
            handle = await self._executor.recovery.pick_up(session, worker=self.name)
            if isinstance(handle, RunHandle):
                self._handles[session_id] = handle
                if self._stopping:
                    await self._executor.hand_over([handle])
                await handle.stopped_here()
            elif not handle:
                await asyncio.sleep(self._services.poll_seconds)  # another process does it, or it cannot be done now
        except HelixError as error:
            logger.warning("Worker %s lost session %s: %s", self.name, session_id, error)
        finally:
            self._handles.pop(session_id, None)
            self._at_work.pop(session_id, None)
            self._bell.set()

    async def _tell_of_strangers(self) -> None:
        """Say once of each agent that waits for a worker and is not known here."""
        known = [agent.name for agent in self._executor.agents]
        for session in await self._services.store.list_claimable(self._services.clock(), limit=LOOKED_AT):
            name = session.agent_type.removeprefix(f"{SCHEDULE}/")
            if name not in (*self._executor.recovery.types(()), *known) and name not in self._strangers:
                self._strangers.add(name)
                logger.warning("Runs of agent %s wait for a worker; this one (%s) does not know it.", name, self.name)

    async def _beat(self) -> None:
        while True:
            try:
                async with await self._services.streams.create_writer(WORKERS, self.name, "worker") as writer:
                    info = WorkerInfo(self.name, self._at_once, self.running, self._services.clock())
                    data = msgspec.to_builtins(info)
                    await writer.write({"type": "custom", "name": "worker", "data": data, "step": 0})
            except HelixError as error:
                logger.warning("Worker %s cannot say that it is there: %s", self.name, error)
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def list_workers(streams: StreamManager, now: int) -> list[WorkerInfo]:
    """Return the workers that were there during the last three heartbeats, by name."""
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
