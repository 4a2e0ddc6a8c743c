"""`helix serve`: serve agents over HTTP; without a module, the demo agents."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from ..backends.registry import open_stores
from ..demo.gallery import gallery
from ..demo.served import demo_executor
from ..errors import InvalidArgument
from ..executor import AgentExecutor
from ..server import Authenticate, HelixApp, User, bearer_tokens, create_app
from ..server.hosts import is_loopback
from ..server.serve import serve
from ..server.users_file import ensure_strong, users_from_file
from .command import address
from .serving import TOKEN_VARIABLE
from .targets import executor_named, find


def run(given: argparse.Namespace) -> int:
    """Serve until a signal stops it, and return the exit code."""
    asyncio.run(_serve(given))
    return 0


async def _serve(given: argparse.Namespace) -> None:
    authenticate = _users(given)
    if authenticate is None and not is_loopback(given.host):
        raise InvalidArgument(
            f"To listen on {given.host}, set {TOKEN_VARIABLE}, or pass --users or --authenticate: "
            "without users, anyone could use it."
        )
    async with _executor(given) as executor:
        app = create_app(
            executor,
            authenticate=authenticate,
            allow_unauthenticated=authenticate is None,
            allow_hosts=given.allow_host,
            allow_origins=given.allow_origin,
        )
        await serve(app, host=given.host, port=given.port, on_ready=lambda where: _announce(given, app, where))


def _users(given: argparse.Namespace) -> Authenticate | None:
    """Return the users of the server: those in a file, those that a function knows, or an admin with a token."""
    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and (given.users or given.authenticate):
        raise InvalidArgument(f"Use either {TOKEN_VARIABLE} or --users and --authenticate, not both: unset one.")
    if given.users is not None:
        return users_from_file(Path(given.users))
    if given.authenticate is not None:
        found = find(given.authenticate)
        if not callable(found):
            raise InvalidArgument(f"{given.authenticate!r} is not a function of a connection, but {found!r:.60}.")
        return cast(Authenticate, found)
    if token is None:
        return None
    return bearer_tokens({ensure_strong(token, TOKEN_VARIABLE): User("admin", is_admin=True)})


@asynccontextmanager
async def _executor(given: argparse.Namespace) -> AsyncIterator[AgentExecutor]:
    """Open the executor that the command line names, on its own stores or on stores opened here."""
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


def _announce(given: argparse.Namespace, app: HelixApp, where: str) -> None:
    names = ", ".join(agent.name for agent in app.context.agents) or "no agents: give the executor agents=[...]"
    stores = f" (stores: {address(given).shown})" if given.url is not None else ""
    print(f"Serving {names} at {where}{stores}. Stop with Ctrl-C.")
    if given.executor is None:
        print(
            f"""
Open {where} in a browser: four sessions appear there in the next seconds.

Or try, in another terminal:
  curl -s {where}/agents
  curl -s {where}/execute -H 'Content-Type: application/json' \\
       -d '{{"agent_type": "assistant", "message": "search ants", "session_id": "s1"}}'
  curl -N {where}/stream/s1
  curl -s {where}/sessions/s1/snapshot"""
        )
    sys.stdout.flush()
