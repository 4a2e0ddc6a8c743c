"""`helix serve`: agents over HTTP. Without a module it serves the demo agents, so that there is something to try."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..backends.registry import open_stores
from ..demo.gallery import gallery
from ..demo.served import demo_executor
from ..errors import InvalidArgument
from ..executor import AgentExecutor
from ..server import User, bearer_tokens, create_app
from ..server.hosts import is_loopback
from ..server.serve import serve
from .command import address
from .serving import TOKEN_VARIABLE
from .targets import executor_named, find


def run(given: argparse.Namespace) -> int:
    """Serve until told to stop; the exit code."""
    asyncio.run(_serve(given))
    return 0


async def _serve(given: argparse.Namespace) -> None:
    token = os.environ.get(TOKEN_VARIABLE)
    if token is None and not is_loopback(given.host):
        raise InvalidArgument(f"To listen on {given.host}, set {TOKEN_VARIABLE}: without it anybody could use it.")
    async with _executor(given) as executor:
        app = create_app(
            executor,
            authenticate=bearer_tokens({token: User("admin", is_admin=True)}) if token is not None else None,
            allow_unauthenticated=token is None,
            allow_origins=given.allow_origin,
        )
        await serve(app, host=given.host, port=given.port, on_ready=lambda where: _tell(given, executor, where))


@asynccontextmanager
async def _executor(given: argparse.Namespace) -> AsyncIterator[AgentExecutor]:
    """What the command line names: an executor as it is, on its own stores, or one made here on stores opened here."""
    if given.executor is not None and isinstance(made := find(given.executor), AgentExecutor):
        given.url = None
        async with made:
            yield made
        return
    async with open_stores(given.url) as stores:
        if given.executor is not None:
            async with executor_named(given.executor, stores) as executor:
                yield executor
            return
        async with demo_executor(stores) as executor, gallery(executor, stores, given.url):
            yield executor


def _tell(given: argparse.Namespace, executor: AgentExecutor, where: str) -> None:
    names = ", ".join(agent.name for agent in executor.agents) or "no agents: give the executor agents=[...]"
    stores = f" (stores: {address(given).shown})" if given.url is not None else ""
    print(f"Serving {names} at {where}{stores}. Stop with Ctrl-C.")
    if given.executor is None:
        print(
            f"""
Open {where} in a browser: four sessions come about there in the next seconds.

Or try, in another terminal:
  curl -s {where}/agents
  curl -s {where}/execute -H 'Content-Type: application/json' \\
       -d '{{"agent_type": "assistant", "message": "search ants", "session_id": "s1"}}'
  curl -N {where}/stream/s1
  curl -s {where}/sessions/s1/snapshot"""
        )
    sys.stdout.flush()
