"""Worker processes to be killed: `python -m tests.soak.worker URL` forks one for every line of standard input.

It prints the id of each. Forking avoids a new interpreter for each death.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import helix_agents.backends.postgres.opening  # imported once here instead of in each child
import helix_agents.backends.redis.opening
import helix_agents.backends.sqlite.opening  # noqa: F401
from helix_agents import HelixError, open_stores
from helix_agents.executor import WorkerPool
from tests.soak.workload import make_executor

REOPEN_SECONDS = 0.2


async def work(url: str) -> None:
    """Execute what is submitted, until killed; retry opening the stores while faults prevent it."""
    while True:
        try:
            async with open_stores(url) as stores, make_executor(stores) as executor, WorkerPool(executor, at_once=4):
                await asyncio.Event().wait()
        except HelixError:
            await asyncio.sleep(REOPEN_SECONDS)


def main(url: str) -> None:
    """Fork for every line."""
    for name in ("helix_agents", "asyncpg"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # faults are the rule here
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
