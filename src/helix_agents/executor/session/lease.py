"""LeaseKeeper: one task per run that renews its lease and polls for a request to stop.

A lease only shows which process is believed to be alive. It does not keep a run from writing after it lost its session:
the version in every commit does (`owned.py`). The lease keeper detects such a loss early.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from ...clock import Clock
from ...errors import (
    EpochConflict,
    HelixError,
    IllegalTransition,
    RunLost,
    RunNotFound,
    SessionNotFound,
    StoreError,
)
from ...safe_text import get_logger
from ...stores.state.contract import StateStore
from ...types import Owner, RunRecord
from ..run.stop_signal import StopSignal

logger = get_logger("helix_agents.executor")

RENEWALS_PER_LEASE = 3
UNBLOCK = (
    "There are no threads in a Worker: split the work into parts that await something"
    if sys.platform == "emscripten"
    else "Do blocking work in a plain `def` tool, which runs in a thread"
)


class LeaseKeeper:
    """Renews the lease of one run."""

    def __init__(
        self,
        store: StateStore,
        *,
        run: RunRecord,
        owner: Owner,
        lease_seconds: float,
        poll_seconds: float,
        claimed_at: int,
        clock: Clock,
        stop: StopSignal,
        reclaim: Callable[[], Awaitable[None]],
    ) -> None:
        self.lost: RunLost | None = None
        self.steps = 0
        self._paused = False
        self.on_lost: Callable[[], object] = lambda: None
        self._store = store
        self._owner = owner
        self.run = run
        """The run's record as it was stored last."""
        self._session_id = run.session_id
        self._run_id = run.run_id
        self._lease_ms = int(lease_seconds * 1000)
        self._poll_seconds = poll_seconds
        self._claimed_at = claimed_at
        self._clock = clock
        self._stop = stop
        self._reclaim = reclaim
        self._task: asyncio.Task[None] | None = None
        self._polling = asyncio.Lock()
        self._ticking: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start renewing and polling."""
        self._task = asyncio.create_task(self._run(), name=f"helix-watch-{self._run_id}")

    async def close(self) -> None:
        """Stop renewing and polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def pause(self) -> None:
        """Stop renewing the lease because it is about to be released."""
        async with self._polling:
            self._paused = True

    def unpause(self) -> None:
        """Renew the lease again after the write that was to end the run has failed."""
        self._paused = False

    async def ensure_owner(self) -> None:
        """Raise `RunLost` unless this run owns the session.

        After the lease has expired (a frozen process, a sleeping machine), claims the session again, because another
        process may be claiming it.
        """
        if self.lost is not None:
            raise self.lost
        if self._paused or self._clock() < self._lease_until:
            return
        try:
            await self._reclaim()
        except RunLost as error:
            raise self._lose(error.why) from error
        await self._renew()

    async def _run(self) -> None:
        self._tick(asyncio.get_running_loop())
        try:
            await self._poll()
        finally:
            if self._ticking is not None:
                self._ticking.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float | None = None) -> None:
        """Detect a blocked event loop; separate from the store calls, which may be slow."""
        now = loop.time()
        if due is not None:
            self._warn_if_blocked(now - due)
        due = now + self._poll_seconds
        self._ticking = loop.call_at(due, self._tick, loop, due)

    async def _poll(self) -> None:
        while self.lost is None:
            await asyncio.sleep(self._poll_seconds)
            try:
                async with self._polling:
                    await self._renew_and_check()
            except RunLost:
                return
            except StoreError:
                continue  # nothing can be written now; `ensure_owner` claims again if the lease has expired
            except HelixError as error:
                self._lose(str(error))

    def _warn_if_blocked(self, late_seconds: float) -> None:
        """Warn about a blocked event loop, which cannot renew its leases, before a session is lost."""
        if late_seconds * 1000 > self._lease_ms / 2:
            logger.warning(
                "The event loop was blocked for %.1f s, and run %s of session %s has a lease of %.1f s: after that, "
                "another process may take the session over. %s, or raise lease_seconds.",
                late_seconds,
                self._run_id,
                self._session_id,
                self._lease_ms / 1000,
                UNBLOCK,
            )

    async def _renew_and_check(self) -> None:
        if self._paused:
            return
        if self._lease_until - self._clock() < self._lease_ms * (RENEWALS_PER_LEASE - 1) // RENEWALS_PER_LEASE:
            await self.ensure_owner()
            await self._renew()
        flag = await self._store.check_interrupt_flag(self._session_id)
        if flag is None:
            return
        # A flag without a run id that is older than the claim was meant for an earlier run.
        if flag.run_id == self._run_id or (flag.run_id is None and flag.set_at >= self._claimed_at):
            self._stop.request(flag.reason, abort=flag.abort)

    async def _renew(self) -> None:
        until = self._clock() + self._lease_ms
        try:
            self.run = await self._store.update_run_status(
                self._run_id,
                "running",
                lease_until=until,
                step_count=self.steps,
                expected_status="running",
                owner=self._owner,
            )
        except (EpochConflict, IllegalTransition, RunNotFound, SessionNotFound):
            raise self._lose("another process has ended it") from None

    @property
    def _lease_until(self) -> int:
        return self.run.lease_until or 0

    def _lose(self, why: str) -> RunLost:
        if self.lost is None:
            self.lost = RunLost(self._session_id, self._run_id, why)
            self.on_lost()
        return self.lost
