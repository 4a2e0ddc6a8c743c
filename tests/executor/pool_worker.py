"""Pools to be killed: `python -m tests.executor.pool_worker URL` forks one for every line of standard input.

It prints the id of each. Forking avoids a new interpreter for each death.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import helix_agents.backends.postgres.opening  # imported once here instead of in each child
import helix_agents.backends.redis.opening
import helix_agents.backends.sqlite.opening  # noqa: F401
from helix_agents import open_stores
from helix_agents.executor import WorkerPool
from tests.executor.pool_agents import executor


async def work(url: str) -> None:
    """Execute what is submitted, until killed."""
    async with open_stores(url) as stores, executor(stores, lease_seconds=1) as ours, WorkerPool(ours, at_once=8):
        await asyncio.Event().wait()


def main(url: str) -> None:
    """Fork for every line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps dead children
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(work(url))
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
