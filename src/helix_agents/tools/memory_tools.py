"""Tools that let a model remember things about its user across sessions, in the memory store."""

from __future__ import annotations

import hashlib
from typing import Any

from .context import ToolContext
from .tool import Tool, tool


def memory_tools(*, source: str = "default", limit: int = 5) -> list[Tool]:
    """Return `save_memory` and `search_memory`, for `Agent(tools=[*memory_tools(), ...])`.

    They work on the memories of the session's user (`execute(..., user_id=...)`). `source` names what they save, and
    limits what they find; `limit`: how many memories a search gives at most.
    """

    @tool(idempotent=True)
    async def save_memory(content: str, ctx: ToolContext[Any]) -> str:
        """Remember something about the user for later conversations. One fact at a time, in a whole sentence.

        Args:
            content: What to remember.
        """
        # The same call gives the same id: one that runs again after a crash replaces what it had saved.
        digest = hashlib.blake2b(f"{ctx.session_id}\n{ctx.tool_call_id}\n{content}".encode(), digest_size=16)
        await ctx.memory.save(content, source=source, id=f"memory-{digest.hexdigest()}")
        return "Remembered."

    @tool(idempotent=True)
    async def search_memory(query: str, ctx: ToolContext[Any]) -> list[str]:
        """Find what was remembered about the user, in this conversation or earlier ones.

        Args:
            query: A few words that occur in what you look for; empty for the latest memories.
        """
        return [memory.content for memory in await ctx.memory.search(query, source=source, limit=limit)]

    return [save_memory, search_memory]
