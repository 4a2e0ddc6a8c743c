"""`helix serve`: agents over HTTP. Without a module it serves the demo agents, so that there is something to try."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from .backends.registry import open_stores
from .demo.served import demo_executor
from .errors import HelixError, InvalidArgument
from .executor import AgentExecutor
from .server import User, bearer_tokens, create_app
from .server.serve import is_loopback, serve

TOKEN_VARIABLE = "HELIX_TOKEN"
DEFAULT_URL = "sqlite:helix.db"


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
    parser.add_argument(
        "executor", nargs="?", help="module:name of an AgentExecutor, or of a function of stores that makes one"
    )
    url = os.environ.get("HELIX_URL", DEFAULT_URL)
    parser.add_argument("--url", default=url, help=f"where the stores are (now: {url})")
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
    if given.executor is None:
        async with open_stores(given.url) as stores, demo_executor(stores) as executor:
            yield executor
        return
    found = _find(given.executor)
    if isinstance(found, AgentExecutor):
        async with found:
            yield found
        return
    async with open_stores(given.url) as stores, found(stores) as executor:  # type: ignore[operator]
        yield executor


def _find(address: str) -> object:
    module, _, name = address.partition(":")
    if not module or not name:
        raise InvalidArgument(f"{address!r} does not name an executor: write module:name, for example my_app:executor.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"Cannot find {address!r}: {error}.") from error


def _tell(given: argparse.Namespace, executor: AgentExecutor, address: str) -> None:
    names = ", ".join(agent.name for agent in executor.agents)
    print(f"Serving {names} at {address} (stores: {given.url.partition('://')[0]}). Stop with Ctrl-C.")
    if given.executor is None:
        print(
            f"""
Try, in another terminal:
  curl -s {address}/agents
  curl -s {address}/execute -H 'Content-Type: application/json' \\
       -d '{{"agent_type": "assistant", "message": "search ants", "session_id": "s1"}}'
  curl -N {address}/stream/s1
  curl -s {address}/sessions/s1/snapshot"""
        )
    sys.stdout.flush()
