"""X1: the loop. A claim, steps with parallel tools, one commit each, and a stream that reports exactly that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import AlreadyRunning
from ...executor import Hooks
from ...executor.run.hooks import RunInfo
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same
from ..harness import Harness
from .harness import check, chunks_of, custom_state, executing, of_type, simple_agent, transcript
from .view import View

STATE: dict[str, Any] = {"items": [], "n": 0, "by": {}}


@tool
async def add(item: str, ctx: ToolContext) -> str:
    """Add an item."""
    ctx.update_state(lambda draft: draft["items"].append(item))
    ctx.update_state(lambda draft: draft.increment("n"))
    return f"added {item}"


@tool
async def add_and_fail(item: str, ctx: ToolContext) -> str:
    """Add an item, then fail."""
    ctx.update_state(lambda draft: draft["items"].insert(0, item))
    await asyncio.sleep(0)
    raise ValueError("no more room")


@tool
async def choose(topic: str, ctx: ToolContext) -> str:
    """Assign a value that another tool also assigns."""
    ctx.update_state(lambda draft: draft.update(topic=topic))
    return topic


@tool
async def count_badly(ctx: ToolContext) -> str:
    """Count without `increment`."""
    ctx.update_state(lambda draft: draft.update(n=draft["n"] + 1))
    return "counted"


TWO_ADDS = Reply("Adding.", [Call("add", {"item": "a"}), Call("add", {"item": "b"})])


@check("X1", "a run returns its output and stores its conversation, state, record and checkpoints")
async def a_run_leaves_everything(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(add, state=STATE)
    async with executing(stores, ScriptedLLM([TWO_ADDS, "Done."])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s", user_id="ann", tags=["t"], metadata={"k": "v"})
        result = await handle.result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    roles = [message["role"] for message in await transcript(stores, "s")]
    expect_same(roles, ["user", "assistant", "tool", "tool", "assistant"], "the conversation")
    session = await stores.state.load_state("s")
    expect(session is not None and session.step_count == 2 and session.user_id == "ann", "the session is wrong")
    expect_same(await custom_state(stores, "s"), {"items": ["a", "b"], "n": 2, "by": {}}, "custom state")
    run = await stores.state.get_current_run("s")
    expect(run is not None and (run.status, run.step_count) == ("completed", 2), f"the run is {run}")
    page = await stores.state.list_checkpoints("s")
    expect_same([found.step_count for found in page.items], [2, 1, 0], "the steps of the checkpoints")


@check(
    "X1", "writes lost between parallel tools are reported in the stream, to hooks and in the result, in every process"
)
async def lost_writes_are_told_by_the_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    heard: list[str] = []

    class Listener(Hooks):
        async def writes_lost(self, run: RunInfo, step: int, warnings: Sequence[str]) -> None:
            heard.extend(warnings)

    script = ScriptedLLM([[Call("choose", {"topic": "cats"}), Call("choose", {"topic": "dogs"})], "Done."])
    agent = simple_agent(choose, state={"topic": ""})
    async with executing(stores, script, hooks=[Listener()]) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
        elsewhere = await executor.get_handle(agent, "s")
        expect(
            elsewhere is not None and (await elsewhere.result()).warnings == result.warnings,
            "another handle returns a different result",
        )
    expect_same(await custom_state(stores, "s"), {"topic": "dogs"}, "custom state")
    expect_same(len(result.warnings), 1, f"the lost writes ({result.warnings})")
    expect("/topic" in result.warnings[0], f"the warning does not name what was lost: {result.warnings[0]}")
    expect_same(heard, result.warnings, "what the hook received")
    committed = of_type(await chunks_of(stores, "s"), "step_committed")
    expect_same([chunk.get("warnings") for chunk in committed], [result.warnings, None], "what the stream reports")


@check("X1", "parallel tools that count by assigning get a warning to use increment")
async def counting_by_assignment_is_told(harness: Harness) -> None:
    stores = await harness.open_stores()
    script = ScriptedLLM([[Call("count_badly")] * 5, "Done."])
    async with executing(stores, script) as executor:
        handle = await executor.execute(simple_agent(count_badly, state=STATE), "Go", session_id="s")
        result = await handle.result()
    expect(any("increment('n'" in warning for warning in result.warnings), f"the warnings are {result.warnings}")


@check("X1", "the message, the stream and the result say why the model stopped")
async def the_finish_reason_is_kept(harness: Harness) -> None:
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM([Reply("Half an ans", finish_reason="length")])) as executor:
        result = await (await executor.execute(simple_agent(), "Go", session_id="s")).result()
        elsewhere = await executor.get_handle("main", "s")
        expect(
            elsewhere is not None and (await elsewhere.result()).finish_reason == "length",
            "another handle returns a different result",
        )
    expect_same([result.output, result.finish_reason], ["Half an ans", "length"], "the result")
    expect_same((await transcript(stores, "s"))[-1].get("finish_reason"), "length", "the message")
    (committed,) = of_type(await chunks_of(stores, "s"), "step_committed")
    expect_same(committed.get("finish_reason"), "length", "the chunk")


@check("X1", "the stream of a run starts, reports every step and ends with the output")
async def the_stream_tells_the_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(add, state=STATE)
    async with executing(stores, ScriptedLLM([TWO_ADDS, "Done."])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        seen = [chunk async for chunk in handle.stream()]
    expect_same(seen, await chunks_of(stores, "s"), "what was read live and what is stored")
    expect_same(seen[0]["type"], "run_started", "the first chunk")
    expect_same(seen[-1]["type"], "output", "the last chunk")
    expect_same([c["step_count"] for c in of_type(seen, "step_committed")], [1, 2], "the commits reported")
    text = "".join(chunk["delta"] for chunk in of_type(seen, "text_delta"))
    expect_same(text, "Adding.Done.", "the text")
    info = await stores.streams.get_stream_info("s")
    expect(info is not None and (info.status, info.final_output) == ("ended", "Done."), f"the stream is {info}")


@check(
    "X1", "a client that applies the state patches ends with the committed state, whatever the tools do", kind="random"
)
async def patches_give_the_committed_state(harness: Harness) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)

    @tool
    async def churn(seed: int, ctx: ToolContext) -> str:
        """Do random things to the state."""
        own = random.Random(seed)
        for _ in range(own.randrange(1, 6)):
            key = own.choice("abc")
            ctx.update_state(partial(_churn, rng=own, key=key))
            if own.random() < 0.7:
                await asyncio.sleep(0)
        if own.random() < 0.25:
            raise ValueError("half-way")
        return "done"

    for number in range(8):
        calls = [[Call("churn", {"seed": rng.randrange(10**9)}) for _ in range(rng.randrange(1, 5))] for _ in range(3)]
        agent = simple_agent(churn, state=STATE)
        async with executing(stores, ScriptedLLM([*calls, "Done."])) as executor:
            handle = await executor.execute(agent, "Go", session_id=f"s{number}")
            view = View()
            async for chunk in handle.stream():
                view.take(chunk)
                if chunk["type"] == "step_committed":
                    kept = await stores.state.get_checkpoint(f"s{number}", chunk["checkpoint_id"])
                    expect_same(
                        view.state(STATE), kept and kept.state.custom_state, f"state after step {chunk['step']}"
                    )


def _churn(draft: Any, rng: random.Random, key: str) -> None:
    match rng.randrange(7):
        case 0:
            draft["items"].append({"k": key})
        case 1:
            draft.increment("n")
        case 2:
            draft["by"].setdefault(key, []).append(rng.randrange(9))
        case 3:
            draft["by"].pop(key, None)
        case 4:
            draft["items"] = [key]
        case 5 if draft["items"]:
            draft["items"].pop(0)
        case _:
            draft[key] = rng.randrange(9)


@check("X1", "what a tool wrote before it failed is neither committed nor left in the state that readers have")
async def a_failed_tool_is_withdrawn(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(add, add_and_fail, state=STATE)
    script: Script = [
        [Call("add", {"item": "a"}), Call("add_and_fail", {"item": "x"}), Call("add", {"item": "b"})],
        "Done.",
    ]
    async with executing(stores, ScriptedLLM(script)) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        view = View()
        async for chunk in handle.stream():
            view.take(chunk)
    state = await custom_state(stores, "s")
    expect_same(state, {"items": ["a", "b"], "n": 2, "by": {}}, "custom state")
    expect_same(view.state(STATE), state, "what the reader has")
    told = [m["content"] for m in await transcript(stores, "s") if m["role"] == "tool"]
    expect_same(told[1], "Error: ValueError: no more room", "what the model sees of the failure")


@check("X1", "a finished session continues with another turn, on a fresh stream")
async def the_next_turn(harness: Harness) -> None:
    stores = await harness.open_stores()
    async with executing(stores, ScriptedLLM(["First.", "Second."])) as executor:
        agent = simple_agent()
        await (await executor.execute(agent, "One", session_id="s")).result()
        handle = await executor.execute(agent, "Two", session_id="s")
        seen = [chunk async for chunk in handle.stream()]
        result = await handle.result()
    expect_same(result.output, "Second.", "the output of the second turn")
    expect_same("".join(c["delta"] for c in of_type(seen, "text_delta")), "Second.", "the text of the second turn")
    contents = [message["content"] for message in await transcript(stores, "s")]
    expect_same(contents, ["One", "First.", "Two", "Second."], "the conversation")
    expect_same([run.turn for run in await stores.state.list_runs("s")], [1, 2], "the turns")


@check("X1", "when many callers start the same session concurrently, exactly one succeeds", kind="tasks")
async def one_of_many_begins(harness: Harness) -> None:
    sets = [await harness.open_stores() for _ in range(5)]
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for the check."""
        await gate.wait()
        return "ok"

    agent = simple_agent(wait)
    executors = [stack for stores in sets for stack in [executing(stores, ScriptedLLM([[Call("wait")], "Done."]))]]
    opened = [await executor.__aenter__() for executor in executors]
    tries = await asyncio.gather(
        *(executor.execute(agent, "Go", session_id="s") for executor in opened), return_exceptions=True
    )
    refused = [found for found in tries if isinstance(found, AlreadyRunning)]
    begun = [found for found in tries if not isinstance(found, BaseException)]
    gate.set()
    for handle in begun:
        await handle.result()
    for executor in executors:
        await executor.__aexit__(None, None, None)
    expect_same([len(begun), len(refused)], [1, 4], "how many started and how many were rejected")
    expect_same(len(await transcript(sets[0], "s")), 4, "the number of messages")


@check("X1", "a running session cannot be started again")
async def a_live_session_is_refused(harness: Harness) -> None:
    stores = await harness.open_stores()
    gate = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for the check."""
        await gate.wait()
        return "ok"

    agent = simple_agent(wait)
    async with executing(stores, ScriptedLLM([[Call("wait")], "Done."])) as executor:
        handle = await executor.execute(agent, "Go", session_id="s")
        refused = 0
        for attempt in (executor.execute(agent, "Again", session_id="s"), executor.resume(agent, "s")):
            try:
                await attempt
            except AlreadyRunning:
                refused += 1
        gate.set()
        await handle.result()
    expect_same(refused, 2, "how many were rejected")


@check("X1", "a run that never ends fails after max_steps, and the session accepts another message")
async def max_steps(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(add, state=STATE, max_steps=2)
    script: Script = [[Call("add", {"item": "a"})], [Call("add", {"item": "b"})], "Done at last."]
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
        expect_same(result.status, "failed", "the status")
        session = await stores.state.load_state("s")
        expect(session is not None and session.failure_reason == "max_steps", "the reason is not stored")
        result = await (await executor.execute(agent, "Now stop", session_id="s")).result()
    expect_same([result.status, result.output], ["completed", "Done at last."], "the next turn")


@check("X1", "usage is recorded with the steps: tokens, tool calls, and counters of tools")
async def usage_is_recorded(harness: Harness) -> None:
    stores = await harness.open_stores()
    if stores.usage is None:
        return

    @tool
    async def fetch(ctx: ToolContext) -> str:
        """Count pages."""
        ctx.record_usage("pages", 2)
        ctx.record_usage("pages", 3)
        return "ok"

    async with executing(stores, ScriptedLLM([[Call("fetch"), Call("fetch")], "Done."])) as executor:
        handle = await executor.execute(simple_agent(fetch), "Go", session_id="s")
        await handle.result()
        rollup = await handle.get_usage_rollup()
    expect_same(rollup.custom, {"pages": 10}, "what the tools counted")
    expect_same(rollup.tools["fetch"].calls, 2, "the calls")
    expect(rollup.tokens.total > 0 and "scripted" in rollup.by_model, "the tokens are missing")
