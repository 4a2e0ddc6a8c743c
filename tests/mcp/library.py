"""An MCP server for the tests, in its own process: `python -m tests.mcp.library stdio|http PORT`."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ImageContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("library")
READ = ToolAnnotations(read_only_hint=True)
JOURNAL = Path(os.environ.get("LIBRARY_JOURNAL", os.devnull))


def _note(line: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(f"{line}\n")


@server.tool(annotations=READ)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    _note(f"add {a} {b}")
    return a + b


@server.tool(annotations=READ)
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool()
def wipe(path: str) -> str:
    """Delete everything."""
    _note(f"wipe {path}")
    return f"wiped {path}"


@server.tool(annotations=READ)
def picture() -> ImageContent:
    """Draw one pixel."""
    return ImageContent(type="image", data=base64.b64encode(b"pixel").decode(), mime_type="image/png")


@server.tool(annotations=READ)
def large(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool(annotations=READ)
async def work(steps: int, ctx: Context) -> str:
    """Work for a while, with progress."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        await asyncio.sleep(0.05)
    return "worked"


@server.tool(annotations=READ)
async def hang() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def die_once() -> str:
    """Kill this process the first time, and return the second time."""
    marker = JOURNAL.with_suffix(".died")
    if marker.exists():
        return "alive again"
    marker.touch()
    os._exit(1)


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def die() -> str:
    """Kill this process."""
    _note("die")
    os._exit(1)


@server.tool(annotations=READ)
async def grow(ctx: Context) -> str:
    """Add a tool to the list."""

    def added() -> str:
        """Say that this tool was added later."""
        return "added later"

    server.add_tool(added, annotations=READ)
    await ctx.notify_tools_changed()
    return "grown"


class Copies(BaseModel):
    """How many copies of a book to print."""

    count: int


class Paper(BaseModel):
    """What to print on."""

    color: str


def ask_copies() -> Elicit[Copies]:
    """Ask for the number of copies."""
    return Elicit("How many copies?", Copies)


def ask_paper() -> Elicit[Paper]:
    """Ask for the paper."""
    return Elicit("Which paper?", Paper)


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def print_book(
    title: str, copies: Annotated[Copies, Resolve(ask_copies)], paper: Annotated[Paper, Resolve(ask_paper)]
) -> str:
    """Print a book, as often as a person says."""
    _note(f"print {title} {copies.count} {paper.color}")
    return f"printed {copies.count} on {paper.color}"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        print("library starts", file=sys.stderr)
        server.run("stdio")
