"""One soak: start a backend, workers and users, inject faults for a while, let everything end, and check."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter

import msgspec

from helix_agents import open_stores
from tests.soak.checker import check
from tests.soak.clients import Client, Session, live_on
from tests.soak.faults import Faults, Workers
from tests.soak.targets import open_target
from tests.soak.workload import make_executor

USERS = 4
SETTLE_SECONDS = 240.0


class Report(msgspec.Struct):
    """What happened, and every violation."""

    backend: str
    seed: int
    seconds: float
    sessions: int = 0
    turns: int = 0
    chunks_read: int = 0
    faults: dict[str, int] = {}
    violations: list[str] = []


async def soak(backend: str, seconds: float, seed: int) -> Report:
    """Run a backend under faults, then check it."""
    rng = random.Random(seed)
    report = Report(backend, seed, seconds)
    sessions: list[Session] = []
    async with open_target(backend) as target:
        async with open_stores(target.url):
            pass  # migrated before workers and users start
        workers = Workers(target.stormy_url)
        try:
            faults = Faults(target, workers, rng)
            async with open_stores(target.stormy_url) as stores, make_executor(stores) as executor:
                over, numbers = asyncio.Event(), itertools.count()
                users = [
                    asyncio.create_task(
                        live_on(
                            Client(stores, executor, report.violations),
                            lambda: f"soak-{next(numbers)}",
                            random.Random(rng.random()),
                            over,
                        )
                    )
                    for _ in range(USERS)
                ]
                try:
                    await faults.inject(seconds)
                    over.set()
                    sessions = await _all_over(users, report)
                finally:
                    for user in users:
                        user.cancel()
                    await asyncio.gather(*users, return_exceptions=True)
        finally:
            workers.close()
        report.faults = dict(sorted(Counter(faults.injected).items()))
        report.violations += await check(target, sessions)
    report.sessions = len(sessions)
    report.turns = sum(session.acknowledged for session in sessions)
    report.chunks_read = sum(len(session.read) for session in sessions)
    return report


async def _all_over(users: list[asyncio.Task[list[Session]]], report: Report) -> list[Session]:
    """Wait until every user is done; the faults have stopped."""
    done, late = await asyncio.wait(users, timeout=SETTLE_SECONDS)
    report.violations += [f"a session was not over {SETTLE_SECONDS:g} s after the last fault"] * len(late)
    return [session for user in done for session in user.result()]
