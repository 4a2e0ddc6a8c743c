"""The agents and the app of the server under test. What a run does depends on the user's message (`demo.served`)."""

from __future__ import annotations

import asyncio
import json

from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores
from helix_agents.demo.researcher import critic, researcher
from helix_agents.demo.served import ask_user, assistant, delete_file, search
from helix_agents.executor import AgentExecutor
from helix_agents.llm.contract import ModelRequest
from helix_agents.llm.scripted import Call, Line, Reply, ScriptedLLM
from helix_agents.server import User
from helix_agents.tools import ToolContext, tool

TOKENS = {
    "alice-token": User("alice"),
    "bob-token": User("bob"),
    "admin-token": User("root", is_admin=True),
}
SIGNATURE = "Eq+/oBCkg=="
"""A block that only the model's provider may see again."""
MAX_BODY_BYTES = 50_000
LEASE_SECONDS = 2.0


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "rested"


@tool(requires_approval=True)
def pay(account: int, note: str = "") -> str:
    """Pay somebody, if a person agrees."""
    return f"paid {account} {note}".rstrip()


@tool(effect="once", key=lambda arguments: arguments["account"], timeout_seconds=0.05)
async def transfer(account: str) -> str:
    """Transfer money; account `slow` takes so long that nobody knows whether it worked."""
    if account == "slow":
        await asyncio.Event().wait()
    return f"transferred to {account}"


@tool
async def fit(shirt: str, ctx: ToolContext) -> str:
    """Fit a shirt, whose size a person knows."""
    return f"fitted the {shirt} shirt: {await ctx.ask({'message': 'Which size?', 'schema': {'type': 'integer'}})}"


manager = Agent("manager", tools=[assistant.as_tool(), nap, search, delete_file, pay, transfer, fit, ask_user])


def play(request: ModelRequest) -> Line:
    """Echo the message, call a tool, or reply at length."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return f"Done: {last['content']}"
    word, _, rest = str(last.get("content", "")).partition(" ")
    match word:
        case "nap":
            return [Call("nap", {"seconds": float(rest)})]
        case "search":
            call = Call("search", {"query": rest})
            return Reply("I will look.", [call], thinking="Where could it be?", native=[{"signature": SIGNATURE}])
        case "delete":
            return [Call("delete_file", {"path": path}) for path in rest.split()]
        case "call":  # call delete_file {"path": "notes.txt"}
            name, _, arguments = rest.partition(" ")
            return [Call(name, json.loads(arguments))]
        case "ask":
            return [Call("ask_user", {"question": rest})]
        case "tell":
            return [Call("assistant", {"input": rest})]
        case "talk":
            return " ".join(f"word{number}" for number in range(int(rest)))
    return f"You said: {word} {rest}".rstrip()


def make_executor(stores: Stores, *, delay_seconds: float = 0.0) -> AgentExecutor:
    """Return an executor with all the agents of the tests."""
    llm = ScriptedLLM(
        {"manager": play, "assistant": play, "critic": ["Fine."], "researcher": play},
        delay_seconds=delay_seconds,
        piece=6,
    )
    return AgentExecutor(
        stores.state,
        stores.streams,
        llm,
        usage_store=stores.usage,
        blob_store=stores.blobs,
        lease_seconds=LEASE_SECONDS,
        agents=[manager, assistant, researcher, critic],
    )
