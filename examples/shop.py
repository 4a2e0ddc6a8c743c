"""A shop that refunds, ships and writes e-mail. Killed anywhere, it does each of these once.

    helix crashtest examples.shop:make_executor --agent clerk --input "Refund order 7" --reset examples.shop:reset

Add `--kill` to end real processes with SIGKILL. Every tool says what it does to the world; see docs/effects.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, ToolContext, open_stores, tool
from helix_agents.llm import Call
from helix_agents.tools import Done, NotDone

BOOKS = Path(os.environ.get("SHOP_BOOKS", f"{tempfile.gettempdir()}/shop-books.jsonl"))
"""Stands for the systems of others: what is written here has happened, whatever becomes of this process."""


def write(key: str, what: str) -> str:
    """Let something happen outside."""
    with BOOKS.open("a") as books:
        books.write(json.dumps([key, what]) + "\n")
    return what


def entries() -> list[tuple[str, str]]:
    """Return what has happened, as keys and words."""
    return [tuple(json.loads(line)) for line in BOOKS.read_text().splitlines()] if BOOKS.exists() else []


def reset() -> None:
    """Open new books."""
    BOOKS.unlink(missing_ok=True)


def look_up(arguments: dict[str, Any], key: str) -> Done | NotDone:
    """Look into the books of the carrier, who knows the key of each parcel."""
    found = dict(entries())
    return Done(found[key]) if key in found else NotDone()


@tool(effect="read")
async def find_order(order: str) -> str:
    """Find an order. It changes nothing, so it may run again."""
    return f"order {order}: 3 socks, 12 euros"


@tool(effect="once", key=lambda arguments: arguments["order"])
async def refund(order: str, ctx: ToolContext) -> str:
    """Give the money back. The bank cannot be asked, so a person looks if the outcome is unknown."""
    return write(ctx.effect_key, f"refunded {order}")


@tool(effect="once", key=lambda arguments: arguments["order"], check=look_up)
async def ship(order: str, ctx: ToolContext) -> str:
    """Send a new parcel. The carrier can be asked."""
    return write(ctx.effect_key, f"shipped {order}")


@tool
async def tell_customer(order: str, ctx: ToolContext) -> str:
    """Write an e-mail and a letter: two effects in one call."""
    mail = await ctx.once("mail", lambda: write(f"mail {order}", "mailed"))
    letter = await ctx.once("letter", lambda: write(f"letter {order}", "posted"))
    return f"{mail} and {letter}"


def make_executor(stores: Stores) -> AgentExecutor:
    """Return an executor with a scripted model."""
    order = {"order": "7"}
    script = [[Call("find_order", order)], [Call("refund", order), Call("ship", order)], [Call("tell_customer", order)]]
    agent = Agent("clerk", tools=[find_order, refund, ship, tell_customer])
    return AgentExecutor(stores, ScriptedLLM([*script, "All done."]), agents=[agent])


async def main() -> None:
    reset()
    async with open_stores("memory:") as stores, make_executor(stores) as executor:
        result = await executor.run("clerk", "Refund order 7")
    print(result.output, entries())


if __name__ == "__main__":
    asyncio.run(main())
