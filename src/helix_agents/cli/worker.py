"""`helix worker`: execute submitted runs until a signal arrives; then finish the current steps and hand over the
rest."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import Any

from ..backends.registry import Stores
from ..executor import WorkerPool
from .command import add_command
from .targets import HOW_TO_NAME, executor_named


def add_worker(commands: Any) -> None:
    """Add the command."""
    parser = add_command(commands, "worker", _work, "execute runs that others submit", creates=True)
    parser.add_argument("executor", help=HOW_TO_NAME)
    parser.add_argument("--at-once", type=int, default=8, help="how many runs at the same time (8)")
    parser.add_argument("--per-agent", type=int, help="at most so many of one agent")
    parser.add_argument("--per-user", type=int, help="at most so many of one user")
    parser.add_argument("--name", help="what run records call this worker")
    parser.add_argument("--until-idle", action="store_true", help="stop when there is nothing left to do")


async def _work(given: argparse.Namespace, stores: Stores) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with executor_named(given.executor, stores) as executor:
        limits: dict[str, Any] = {"per_agent": given.per_agent, "per_user": given.per_user, "name": given.name}
        async with WorkerPool(executor, at_once=given.at_once, **limits) as pool:
            names = ", ".join(agent.name for agent in executor.agents)
            print(f"Worker {pool.name} executes {names}, {given.at_once} at once. Stop with Ctrl-C.", flush=True)
            stopping = asyncio.create_task(stop.wait())
            waits: set[asyncio.Task[Any]] = {stopping}
            if given.until_idle:
                waits.add(asyncio.create_task(pool.run_until_idle()))
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in waits:
                task.cancel()
    return 0
