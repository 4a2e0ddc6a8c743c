"""The arguments of `helix serve`. The command itself is in `serve.py`, loaded on demand: it needs the extra
`server`."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from ..errors import InvalidArgument
from .command import add_url
from .targets import HOW_TO_NAME

TOKEN_VARIABLE = "HELIX_TOKEN"
MAX_PORT = 65_535


def add_serve(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="serve agents over HTTP, with a page to look at them",
        description="Serve agents over HTTP, Server-Sent Events and WebSocket; without an executor, demo agents.",
        epilog=f"With {TOKEN_VARIABLE} set, requests need `Authorization: Bearer <its value>` and come from an admin. "
        "Without users, everybody who can reach the server may do everything: this is allowed on loopback only.",
    )
    parser.add_argument("executor", nargs="?", help=HOW_TO_NAME)
    add_url(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8000, help="the port to listen on (8000); 0 takes a free one")
    users = parser.add_mutually_exclusive_group()
    users.add_argument("--users", metavar="FILE", help="a TOML file of users: [ann], token = '...', is_admin = false")
    users.add_argument("--authenticate", metavar="MODULE:FUNCTION", help="a function of a connection: a User, or None")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="HOST", help="a host name it is reached by; repeat"
    )
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="ORIGIN", help="a site whose pages may use it; repeat"
    )
    parser.set_defaults(run=_run)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: expected a number from 0 to {MAX_PORT}")
    return int(text)


def _run(given: argparse.Namespace) -> int:
    try:
        module = import_module(".serve", __package__)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise InvalidArgument("helix serve needs an extra: pip install 'helix-agents[server]'.") from error
    code: int = module.run(given)
    return code
