"""Processes for the storm: each runs the kit's scenario on any session that needs it, until it is killed.

`python -m tests.executor.storm_worker URL FOLDER` forks one for every line of standard input and prints its id, which
avoids a new interpreter for each death. Unexpected errors are written to a file in the folder.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import traceback
from pathlib import Path

import helix_agents.backends.postgres.opening  # imported once here instead of in each child
import helix_agents.backends.redis.opening
import helix_agents.backends.sqlite.opening  # noqa: F401
from helix_agents import AlreadyRunning, StoreUnavailable, open_stores
from helix_agents.backends.registry import Stores
from helix_agents.conformance.executor.cast import make_author, make_llm
from helix_agents.conformance.executor.harness import make_executor
from helix_agents.conformance.executor.play import answer_all, begin_or_go_on, is_over
from helix_agents.errors import NotResumable, RunLost
from helix_agents.executor import AgentExecutor

LEASE_SECONDS = 2.0
"""The longest freezes are longer. On a busy machine a process stalls for a second by itself: a run that is taken over
each time, before its next commit, would fail because it seems to kill every process."""
AT_ONCE = 2
WINDOW = 4
EXPECTED = (AlreadyRunning, NotResumable, RunLost, StoreUnavailable)
"""Errors that other processes and injected faults may cause for a caller. Any other error is a bug."""


class Worker:
    """One process of many that share the sessions."""

    def __init__(self, stores: Stores, executor: AgentExecutor, folder: Path) -> None:
        self._stores = stores
        self._executor = executor
        self._folder = folder
        self._over: set[int] = set()

    async def work(self) -> None:
        """Repeatedly pick up one of the unfinished sessions."""
        while True:
            first = next(number for number in range(len(self._over) + 1) if number not in self._over)
            number = first + random.randrange(WINDOW)
            try:
                await self._go_on(number)
            except EXPECTED:
                pass
            except Exception:
                (self._folder / f"fault-{os.getpid()}").write_text(f"session {number}\n{traceback.format_exc()}")
            await asyncio.sleep(random.uniform(0.01, 0.08))

    async def _go_on(self, number: int) -> None:
        session_id = f"storm-{number}"
        calm = (self._folder / "calm").exists()
        if await is_over(self._stores, session_id):
            self._over.add(number)
        elif not calm or await self._stores.state.session_exists(session_id):
            await answer_all(self._executor, session_id)
            await begin_or_go_on(self._executor, session_id)


async def main(url: str, folder: Path) -> None:
    """Work until killed; retry opening the stores while faults prevent it."""
    while True:
        try:
            async with open_stores(url) as stores:
                agents = [make_author(lambda line: None)]
                async with make_executor(
                    stores, make_llm(0.002), agents=agents, lease_seconds=LEASE_SECONDS
                ) as executor:
                    worker = Worker(stores, executor, folder)
                    await asyncio.gather(*(worker.work() for _ in range(AT_ONCE)))
        except StoreUnavailable:
            await asyncio.sleep(0.1)


def nursery(url: str, folder: Path) -> None:
    """Fork for every line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead children
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                random.seed()
                asyncio.run(main(url, folder))
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    nursery(sys.argv[1], Path(sys.argv[2]))
