"""`helix serve`: agents over HTTP. Without a module it serves the demo agents, so that there is something to try."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ..backends.registry import open_stores
from ..demo.gallery import gallery
from ..demo.served import demo_executor
from ..errors import HelixError, InvalidArgument
from ..executor import AgentExecutor
from ..server import User, bearer_tokens, create_app
from ..server.serve import is_loopback, serve
from .command import add_url
from .targets import HOW_TO_NAME, executor_named

TOKEN_VARIABLE = "HELIX_TOKEN"


def main(argv: Sequence[str]) -> int:
    """Serve until told to stop; the exit code."""
    given = _parser().parse_args(argv)
    try:
        asyncio.run(_serve(given))
    except HelixError as error:
        print(f"helix: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="helix serve",
        description="Serve agents over HTTP, Server-Sent Events and WebSocket.",
        epilog=f"With {TOKEN_VARIABLE} set, requests need `Authorization: Bearer <its value>`. Without it everybody "
        "who can reach the server may do everything, which is allowed on loopback addresses only.",
    )
    parser.add_argument("executor", nargs="?", help=HOW_TO_NAME)
    add_url(parser)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN", help="may be repeated")
    return parser


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
        await serve(
            app, executor, host=given.host, port=given.port, on_ready=lambda address: _tell(given, executor, address)
        )


@asynccontextmanager
async def _executor(given: argparse.Namespace) -> AsyncIterator[AgentExecutor]:
    """What the command line names: an executor as it is, or one made here on stores that are opened here."""
    async with open_stores(given.url) as stores:
        if given.executor is not None:
            async with executor_named(given.executor, stores) as executor:
                yield executor
            return
        async with demo_executor(stores) as executor, gallery(executor, stores, given.url):
            yield executor


def _tell(given: argparse.Namespace, executor: AgentExecutor, address: str) -> None:
    names = ", ".join(agent.name for agent in executor.agents)
    print(f"Serving {names} at {address} (stores: {given.url.partition('://')[0]}). Stop with Ctrl-C.")
    if given.executor is None:
        print(
            f"""
Open {address} in a browser: four sessions come about there in the next seconds.

Or try, in another terminal:
  curl -s {address}/agents
  curl -s {address}/execute -H 'Content-Type: application/json' \\
       -d '{{"agent_type": "assistant", "message": "search ants", "session_id": "s1"}}'
  curl -N {address}/stream/s1
  curl -s {address}/sessions/s1/snapshot"""
        )
    sys.stdout.flush()
