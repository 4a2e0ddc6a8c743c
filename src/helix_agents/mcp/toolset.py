"""MCP: the tools of a server as tools of an agent, up to date between steps, approved by the server's own hints.

The specification's hints decide which calls a person must approve: everything that is neither read-only nor said to
be harmless. A tool that disappears stays callable for replies that already name it: the server then reports the error.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp

from ..errors import HelixError, InvalidArgument, ToolsUnavailable
from ..tools import EffectKind, OutcomeUnknown, Tool, ToolContext
from .connection import Connection, ConnectionLost, Server
from .results import result_of

Approval = Literal["destructive", "always", "never"] | Callable[[Any], bool]
"""Which tools need a person's approval; a function gets the tool as the server describes it."""

MAX_NAME = 64
MAX_TOOLS = 1_000
MAX_PAGES = 100
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class MCP:
    """The tools of one MCP server, for `Agent(tools=[...])`. Each process connects when it first needs them.

    `url_or_command`: a URL of streamable HTTP, or a command as a list; `command=` also takes the list. `prefix`: put
    before each tool's name. `approve`: `"destructive"` (the default), `"always"`, `"never"`, or a function of the
    server's tool. `trusted=False`: the server's hints count for nothing, so every call needs approval.
    `timeout_seconds`: of one call, counted from its last progress notification. `headers`, `auth`: of HTTP requests.
    """

    def __init__(
        self,
        url_or_command: str | Sequence[str] | None = None,
        *,
        command: Sequence[str] | None = None,
        prefix: str | None = None,
        approve: Approval = "destructive",
        trusted: bool = True,
        timeout_seconds: float = 60.0,
        open_seconds: float = 30.0,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        if (url_or_command is None) == (command is None):
            raise InvalidArgument("MCP needs a URL or a command: MCP('https://...') or MCP(command=['program', ...]).")
        if approve not in ("destructive", "always", "never") and not callable(approve):
            raise InvalidArgument(f"approve must be 'destructive', 'always', 'never' or a function, not {approve!r}.")
        url = url_or_command if isinstance(url_or_command, str) else None
        words = command if url_or_command is None else None if url is not None else url_or_command
        if url is not None and not url.startswith(("http://", "https://")):
            raise InvalidArgument(f"MCP takes an http(s) URL or a command as a list, not {url!r}.")
        self._server = Server(url, words, env=env, cwd=cwd, headers=headers, auth=auth)
        self._prefix = prefix or ""
        self._approve = approve
        self._trusted = trusted
        self._timeout_seconds = timeout_seconds
        self._open_seconds = open_seconds
        self._connections: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = (
            weakref.WeakKeyDictionary()
        )
        self._known: dict[str, Tool] = {}
        self._offered: dict[str, Tool] = {}

    def __repr__(self) -> str:
        return f"<MCP {self._server}>"

    @property
    def offered(self) -> Mapping[str, Tool]:
        """The server's tools, in the order in which they first appeared."""
        return self._offered

    @property
    def known(self) -> Mapping[str, Tool]:
        """Every tool the server ever had."""
        return self._known

    async def refresh(self) -> None:
        """List the server's tools if they may have changed. Raises `ToolsUnavailable` if none were ever listed."""
        connection = self._connection
        if self._offered and not connection.tools_changed:
            return
        try:
            listed = await connection.call(self._list)
        except (ToolsUnavailable, ConnectionLost, mcp.MCPError) as error:
            if not self._offered:
                raise ToolsUnavailable(f"{self._server} offers no tools: {error}") from error
            return  # calls say what is wrong; the model may do without
        self._offer(listed)

    async def close(self) -> None:
        """Close this event loop's connection. The next step opens it again."""
        await self._connection.close()

    @property
    def _connection(self) -> Connection:
        loop = asyncio.get_running_loop()
        connection = self._connections.get(loop)
        if connection is None:
            connection = self._connections[loop] = Connection(self._server, open_seconds=self._open_seconds)
        return connection

    async def _list(self, client: mcp.Client) -> list[Any]:
        self._connection.tools_changed = False  # before reading: a change during it is seen next time
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            async with asyncio.timeout(self._open_seconds):
                page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if len(found) > MAX_TOOLS:
                raise InvalidArgument(f"{self._server} lists more than {MAX_TOOLS:,} tools.")
            if not cursor:
                return found
        raise InvalidArgument(f"{self._server} lists its tools on more than {MAX_PAGES} pages.")

    def _offer(self, listed: Sequence[Any]) -> None:
        made: dict[str, Tool] = {}
        sources: dict[str, str] = {}
        for theirs in listed:
            name = tool_name(self._prefix + theirs.name)
            if sources.setdefault(name, theirs.name) != theirs.name:
                raise InvalidArgument(
                    f"{self._server}: the tools {sources[name]!r} and {theirs.name!r} would both be named {name!r}."
                )
            made[name] = self._tool(name, theirs)
        order = [*(name for name in self._known if name in made), *(name for name in made if name not in self._known)]
        self._known.update(made)
        self._offered = {name: made[name] for name in order}

    def _tool(self, name: str, theirs: Any) -> Tool:
        hints = theirs.annotations if self._trusted else None
        effect: EffectKind = "once"
        if hints and (hints.read_only_hint or hints.idempotent_hint):
            effect = "read" if hints.read_only_hint else "idempotent"

        async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
            return await self._call(theirs.name, arguments, context, repeatable=effect != "once")

        return Tool.from_schema(
            name,
            theirs.description or theirs.title or "",
            theirs.input_schema,
            call,
            requires_approval=self._needs_approval(theirs, hints),
            effect=effect,
        )

    def _needs_approval(self, theirs: Any, hints: Any) -> bool:
        if callable(self._approve):
            return bool(self._approve(theirs))
        if self._approve != "destructive":
            return self._approve == "always"
        if hints is None:
            return True  # the specification's default is destructive
        return not (hints.read_only_hint or hints.destructive_hint is False)

    async def _call(self, name: str, arguments: dict[str, Any], context: ToolContext, *, repeatable: bool) -> Any:
        async def work(client: mcp.Client) -> Any:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(self._timeout_seconds) as limit:

                async def report(progress: float, total: float | None, message: str | None) -> None:
                    limit.reschedule(loop.time() + self._timeout_seconds)
                    context.emit("mcp_progress", {"done": progress, "total": total, "message": message})

                meta: Any = {"helix/tool_call_id": context.tool_call_id, "helix/effect_key": context.effect_key}
                return await connection.asking.during(
                    context, lambda: client.call_tool(name, arguments, progress_callback=report, meta=meta)
                )

        connection = self._connection
        try:
            return result_of(await connection.call(work))
        except ConnectionLost as error:
            if not repeatable:
                raise OutcomeUnknown(f"{error} It is not known whether the call was executed.") from error
            return result_of(await connection.call(work))
        except TimeoutError as error:
            silent = f"{self._server} gave no sign of life for {self._timeout_seconds:g} seconds."
            raise (HelixError if repeatable else OutcomeUnknown)(silent) from error


def tool_name(name: str) -> str:
    """Return a name that models accept. A long name is cut and ends with a digest, so that it stays unique."""
    plain = _NOT_IN_NAMES.sub("_", name)
    if len(plain) <= MAX_NAME:
        return plain
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{plain[: MAX_NAME - 9]}_{digest}"


@asynccontextmanager
async def mcp_tools(url_or_command: str | Sequence[str], **options: Any) -> AsyncIterator[list[Tool]]:
    """Yield the tools of a server as a list, for as long as the block lasts; `options` are those of `MCP`."""
    server = MCP(url_or_command, **options)
    await server.refresh()
    try:
        yield list(server.offered.values())
    finally:
        await server.close()
