"""X5: a sub-agent's session belongs to its parent and to no other parent, user or agent, even if its id is taken."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ...agent import Agent
from ...errors import RunLost
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .frozen import Freezer
from .harness import Clockwork, check, executing, of_type, simple_agent, transcript

SECRET = "Ann's private plan"


@check("X5", "a foreign session under a sub-agent's id is not used: the call fails")
async def a_squatted_child(harness: Harness) -> None:
    stores = await harness.open_stores()
    child, other = Agent("child"), Agent("other")
    agent = simple_agent(child.as_tool(mode="persistent"), child.as_tool(name="brief"))
    calls = [Call("child", {"input": SECRET}), Call("brief", {"input": SECRET})]
    script: dict[str, Script] = {"main": [calls, "Done."], "child": ["Buy mine."], "other": ["Buy mine."]}
    cases = {"user": (child, "bob"), "agent": (other, "ann"), "parent": (child, "ann")}
    async with executing(stores, ScriptedLLM(script)) as executor:
        for session_id, (squatter, user_id) in cases.items():
            squatted = [f"{session_id}/@child", f"{session_id}/call_1_2"]
            for taken in squatted:
                await (await executor.execute(squatter, "Mine.", session_id=taken, user_id=user_id)).result()
            before = [await transcript(stores, taken) for taken in squatted]
            handle = await executor.execute(agent, "Go", session_id=session_id, user_id="ann")
            chunks = [chunk async for chunk in handle.stream()]
            expect_same((await handle.result()).output, "Done.", "the parent's output")
            told = [message for message in await transcript(stores, session_id) if message["role"] == "tool"]
            expect_same(
                [message["success"] for message in told], [False, False], f"whether the calls of {session_id} succeed"
            )
            after = [await transcript(stores, taken) for taken in squatted]
            expect_same(after, before, f"the foreign sessions of {session_id}")
            expect_same(len(await stores.state.list_sub_session_refs(session_id)), 0, "the children")
            for kind in ("tool_start", "tool_end"):
                expect_same(len(of_type(chunks, kind)), 2, f"the number of {kind} chunks")


@check("X5", "aborting a parent leaves a foreign session under its sub-agent's id alone")
async def a_squatted_child_is_left_alone(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool(execute="client")
    def ask() -> str:
        """Ask a person."""
        raise NotImplementedError

    @tool
    async def stop(ctx: ToolContext) -> str:
        """Abort the run from inside."""
        await executor.abort(ctx.session_id, "enough")
        return "aborted"

    child = Agent("child", tools=[ask])
    agent = simple_agent(stop, child.as_tool())
    script: dict[str, Script] = {"main": [[Call("stop"), Call("child", {"input": "x"})]], "child": [[Call("ask")]]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        await (await executor.execute(child, "Mine.", session_id="s/call_1_2", user_id="bob")).result()
        result = await (await executor.execute(agent, "Go", session_id="s", user_id="ann")).result()
        expect_same([result.status, result.error], ["failed", "enough"], "the parent")
    foreign = await stores.state.load_state("s/call_1_2")
    expect(foreign is not None and foreign.status == "suspended_client_tool", f"the foreign session: {foreign}")


@check("X5", "tools of a sub-agent get the user of its parent")
async def a_child_has_the_parents_user(harness: Harness) -> None:
    stores = await harness.open_stores()
    users: list[str | None] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Note the user."""
        users.append(ctx.user_id)
        return "ok"

    inner = Agent("inner", tools=[look])
    child = Agent("child", tools=[inner.as_tool(), look])
    script: dict[str, Script] = {
        "main": [[Call("child", {"input": "x"})], "Done."],
        "child": [[Call("inner", {"input": "x"}), Call("look")], "Done."],
        "inner": [[Call("look")], "Done."],
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        await (await executor.execute(simple_agent(child.as_tool()), "Go", session_id="s", user_id="ann")).result()
    expect_same(users, ["ann", "ann"], "the users")


@check("X5", "a parent that is deleted while its process stalls before it creates a child leaves no child behind")
async def a_child_of_a_deleted_parent(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(Agent("child").as_tool())
    script: dict[str, Script] = {"main": [[Call("child", {"input": SECRET})], "Done."], "child": ["Helped."]}
    freezer, later = Freezer(on="create_session", session_id="s/call_1_1"), Clockwork()
    later.pass_seconds(3600)
    async with (
        executing(freezer.wrap(stores), ScriptedLLM(script)) as frozen,
        executing(stores, ScriptedLLM(script), clock=later) as other,
    ):
        handle = await frozen.execute(agent, "Go", session_id="s")
        await asyncio.wait_for(freezer.frozen.wait(), 20)
        expect(await other.delete_session("s"), "there was nothing to delete")
        freezer.wake()
        with raises(RunLost, "a run whose session was deleted"):
            await asyncio.wait_for(handle.result(), 20)
    for session_id in ("s", "s/call_1_1"):
        expect(not await stores.state.session_exists(session_id), f"session {session_id} exists")
        expect(await stores.streams.get_stream_info(session_id) is None, f"stream {session_id} exists")


@tool(execute="client")
def ask() -> str:
    """Ask a person."""
    raise NotImplementedError


ASKING: dict[str, Script] = {
    "main": [[Call("child", {"input": "x"})], "Done."],
    "child": [[Call("ask", id="the_question")], "Asked."],
}


@check(
    "X5", "a parent that was replaced while it stalled does not overwrite what its successor recorded about the child"
)
async def a_replaced_parent_notes_nothing(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(Agent("child", tools=[ask]).as_tool())
    for call, skip in (("add_sub_session_refs", 1), ("update_sub_session_ref", 0)):
        session_id = f"s-{call}"
        freezer, later = Freezer(on=call, session_id=session_id, skip=skip), Clockwork()
        later.pass_seconds(3600)
        async with (
            executing(freezer.wrap(stores), ScriptedLLM(ASKING)) as frozen,
            executing(stores, ScriptedLLM(ASKING), clock=later) as other,
        ):
            handle = await frozen.execute(agent, "Go", session_id=session_id)
            running = asyncio.create_task(handle.result())
            stopping = asyncio.create_task(freezer.frozen.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            result = await (await other.resume(agent, session_id)).result() if not running.done() else await running
            for wait in result.suspended:
                await other.submit_tool_result(session_id, wait.tool_call_id, result="yes")
            result = await (await other.resume(agent, session_id)).result()
            expect_same([result.status, result.output], ["completed", "Done."], "the successor's result")
            freezer.wake()
            await asyncio.gather(running, return_exceptions=True)
        refs = await stores.state.list_sub_session_refs(session_id)
        expect_same([ref.status for ref in refs], ["completed"], f"the refs, stalled before {call}")


@check("X5", "restoring a session ends the sub-agents of the steps that it undoes")
async def children_of_undone_steps(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(Agent("child", tools=[ask]).as_tool())
    script = {**ASKING, "main": ["One.", *cast(list[Any], ASKING["main"])]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        await (await executor.execute(agent, "Go", session_id="s")).result()
        before = (await stores.state.list_checkpoints("s")).items[0]
        result = await (await executor.execute(agent, "On", session_id="s")).result()
        expect_same(result.status, "suspended_awaiting_children", "the parent")
        (ref,) = await stores.state.list_sub_session_refs("s")
        await executor.restore("s", before.checkpoint_id)
        child = await stores.state.load_state(ref.sub_session_id)
        got = None if child is None else [child.status, child.failure_reason]
        expect_same(got, ["failed", "parent_restored"], "the sub-agent")
        refs = await stores.state.list_sub_session_refs("s")
        expect_same([each.status for each in refs], ["failed"], "the refs")


@check("X5", "a child that was deleted and recreated while it ran is another session: the call fails")
async def a_child_created_again(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def replace(ctx: ToolContext) -> str:
        """Replace this session with another one."""
        await stores.state.delete_session(ctx.session_id)
        await stores.state.create_session(
            ctx.session_id, agent_type="child", parent_session_id="s", root_session_id="s", user_id="ann"
        )
        return "replaced"

    child = Agent("child", tools=[replace])
    script: dict[str, Script] = {
        "main": [[Call("child", {"input": SECRET})], "Done."],
        "child": [[Call("replace")], "never"],
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        handle = await executor.execute(simple_agent(child.as_tool()), "Go", session_id="s", user_id="ann")
        result = await asyncio.wait_for(handle.result(), 20)
    expect_same([result.status, result.output], ["completed", "Done."], "the parent")
    told = [message["success"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, [False], "whether the call succeeded")
    expect_same(await transcript(stores, "s/call_1_1"), [], "the other session")
