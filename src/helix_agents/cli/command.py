"""Create commands and open their stores.

Most commands read or change existing data: their stores are opened without creating or migrating, so a mistyped address
is an error instead of an empty database. Only a command that says so (`creates=True`) creates and migrates.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from ..backends.registry import Stores, open_stores
from ..backends.url import StoresUrl, parse_url
from ..errors import HelixError, InvalidArgument

URL_VARIABLE = "HELIX_URL"
DEFAULT_URL = "sqlite:helix.db"

Work = Callable[[argparse.Namespace, Stores], Coroutine[Any, Any, int]]
"""The function of a command: takes stores and arguments, returns the exit code."""


def add_command(
    commands: Any, name: str, work: Work, summary: str, *, creates: bool = False
) -> argparse.ArgumentParser:
    """Add a command that works on stores, with `--url`."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
    add_url(parser)

    async def on_stores(given: argparse.Namespace) -> int:
        async with stores_of(given, create=creates) as stores:
            return await work(given, stores)

    parser.set_defaults(run=lambda given: asyncio.run(on_stores(given)))
    return parser


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--json`, for programs."""
    parser.add_argument("--json", action="store_true", help=f"{what}, for programs")


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add `--url`. Its help shows the current address, without a password."""
    url = default_url()
    parser.add_argument("--url", default=url, help=f"where the stores are (now: {_shown(url)})".replace("%", "%%"))


def default_url() -> str:
    """Return the address of the stores if none is given."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def address(given: argparse.Namespace) -> StoresUrl:
    """Return the address that a command was given."""
    return parse_url(given.url)


@asynccontextmanager
async def stores_of(given: argparse.Namespace, *, create: bool = False) -> AsyncIterator[Stores]:
    """Open the stores of a command: existing ones unchanged, or with `create`, created and migrated as needed."""
    ensure_shared(address(given))
    async with open_stores(given.url, migrate=create) as stores:
        yield stores


def ensure_shared(url: StoresUrl) -> None:
    """Reject stores that other processes cannot see, such as memory."""
    if url.scheme == "memory":
        raise InvalidArgument(
            "This command cannot share memory: stores with another process: pass --url, or set "
            f"{URL_VARIABLE}, for example to {DEFAULT_URL}."
        )


def _shown(url: str) -> str:
    try:
        return parse_url(url).shown
    except HelixError:
        return "not an address"
