"""The agents of `helix serve` without a module: enough to try every route without a model.

`researcher` is the demo's. `assistant` reacts to a few words: "search ..." calls a tool, "delete ..." needs an
approval, "ask ..." asks the client, "think" streams reasoning, "fail" fails, "long" streams a long reply; anything else
is echoed. `watcher` counts ants for a quarter of an hour, so that one session is always running.
"""

from __future__ import annotations

import asyncio

from ..agent import Agent
from ..backends.registry import Stores
from ..errors import ModelError
from ..executor import AgentExecutor
from ..llm.contract import ModelRequest
from ..llm.scripted import Call, Line, Reply, ScriptedLLM
from ..tools import ToolContext, tool
from .researcher import SCRIPT, researcher

LONG_TALK = 40
OBSERVE_SECONDS = 2.0
WATCHED_STEPS = 400
PLACES = ("nest", "short bridge", "long bridge", "food")


@tool
async def search(query: str, ctx: ToolContext) -> str:
    """Pretend to search the web."""
    ctx.emit("progress", {"query": query, "percent": 50})
    await asyncio.sleep(0.2)
    ctx.update_state(lambda state: state.setdefault("searches", []).append(query))
    return f"Three pages speak of {query}."


@tool(requires_approval=True)
def delete_file(path: str, ctx: ToolContext) -> str:
    """Delete a file after approval; nothing is really deleted."""
    ctx.update_state(lambda state: state.setdefault("deleted", []).append(path))
    return f"{path} is gone."


@tool(execute="client")
def ask_user(question: str) -> str:
    """Ask the person at the client."""
    raise NotImplementedError("A client executes this.")


assistant = Agent(
    "assistant",
    instructions="Be of use.",
    description='Try: "search ants", "delete notes.txt", "ask my name", "think", "long", "fail", or anything else.',
    tools=[search, delete_file, ask_user],
    state={"searches": [], "deleted": []},
)


@tool
async def observe(place: str, ctx: ToolContext) -> dict[str, int]:
    """Count the ants at a place."""
    await asyncio.sleep(OBSERVE_SECONDS)
    ants = 40 + 7 * len(place) + 3 * len(ctx.state["counts"])
    ctx.update_state(lambda state: state["counts"].append({"place": place, "ants": ants}))
    ctx.update_state(lambda state: state.increment("rounds"))
    return {"ants": ants}


watcher = Agent(
    "watcher",
    instructions="Count the ants, again and again.",
    description="Watches a colony for a long while: something that is always at work.",
    tools=[observe],
    state={"counts": [], "rounds": 0},
    max_steps=WATCHED_STEPS,
)


def demo_executor(stores: Stores, *, lease_seconds: float = 10) -> AgentExecutor:
    """Return an executor that knows the demo agents."""
    llm = ScriptedLLM(
        {"assistant": _assistant, "researcher": _researcher, "critic": _critic, "watcher": _watcher},
        delay_seconds=0.02,
        piece=6,
    )
    return AgentExecutor(
        stores.state,
        stores.streams,
        llm,
        usage_store=stores.usage,
        blob_store=stores.blobs,
        lease_seconds=lease_seconds,
        agents=[assistant, researcher, watcher],
    )


def _researcher(request: ModelRequest) -> Line:
    """Return the demo's script, restarted in every turn."""
    script = SCRIPT["researcher"]
    assert not callable(script)
    lines: list[Line] = [line for line in script if isinstance(line, Reply | list)]
    return lines[_answers_in_this_turn(request) % len(lines)]


def _critic(request: ModelRequest) -> Line:
    return "'Shortest' is too strong: colonies can get stuck on a way that is merely good."


def _watcher(request: ModelRequest) -> Line:
    rounds = _answers_in_this_turn(request)
    if rounds >= WATCHED_STEPS - 1:
        return "The colony has settled on the short bridge."
    places = [PLACES[(rounds + offset) % len(PLACES)] for offset in range(2)]
    return Reply(
        f"Round {rounds + 1}: the {places[0]} and the {places[1]}.",
        [Call("observe", {"place": place}) for place in places],
    )


def _assistant(request: ModelRequest) -> Line:
    last = request.messages[-1]
    if last["role"] == "tool":
        return f"Done: {last['content']}"
    said = str(last.get("content", ""))
    word, _, rest = said.partition(" ")
    match word.lower():
        case "search":
            return Reply("I will look.", [Call("search", {"query": rest or "nothing"})])
        case "delete":
            return Reply("As you wish, if you agree.", [Call("delete_file", {"path": rest or "everything"})])
        case "ask":
            return Reply("I have a question.", [Call("ask_user", {"question": f"What about {rest or 'it'}?"})])
        case "think":
            return Reply("I have thought about it.", thinking="First this, then that, and therefore the other.")
        case "long":
            return " ".join(f"This is sentence number {number}." for number in range(1, LONG_TALK + 1))
        case "fail":
            return ModelError("The model was told to fail.")
    return f"You said: {said}"


def _answers_in_this_turn(request: ModelRequest) -> int:
    """Return how often the model has replied since the user's last message."""
    count = 0
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        count += message["role"] == "assistant" and not message.get("interrupted")
    return count
