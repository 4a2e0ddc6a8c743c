"""X5: sub-agents have their own sessions: isolated, forwarded, awaited, counted, and deleted with their parent."""

from __future__ import annotations

import asyncio

from ...agent import Agent
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same
from ..harness import Harness
from .harness import Clockwork, check, chunks_of, custom_state, executing, of_type, simple_agent, transcript


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Note something in the agent's own state."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    return "noted"


@tool(execute="client")
def ask(question: str) -> str:
    """Ask a person."""
    raise NotImplementedError


STATE: dict[str, list[str]] = {"notes": []}


@check("X5", "a sub-agent has its own session, state, messages and runs, and its output is the tool's result")
async def a_child_is_a_session(harness: Harness) -> None:
    stores = await harness.open_stores()
    child = Agent("child", tools=[note], state=STATE)
    agent = simple_agent(note, child.as_tool(), state=STATE)
    script: dict[str, Script] = {
        "main": [[Call("note", {"text": "above"}), Call("child", {"input": "help"})], "Done."],
        "child": [Reply("Hm.", [Call("note", {"text": "below"})]), "Helped."],
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        handle = await executor.execute(agent, "Go", session_id="s", user_id="ann")
        chunks = [chunk async for chunk in handle.stream()]
        await handle.result()
        rollup = await handle.get_usage_rollup()
    expect_same(await custom_state(stores, "s"), {"notes": ["above"]}, "the parent's state")
    expect_same(await custom_state(stores, "s/call_1_2"), {"notes": ["below"]}, "the child's state")
    below = await stores.state.load_state("s/call_1_2")
    expect(
        below is not None and (below.parent_session_id, below.root_session_id, below.user_id) == ("s", "s", "ann"),
        "the child does not have its parent, root and user",
    )
    contents = [message["content"] for message in await transcript(stores, "s/call_1_2")]
    expect_same(contents, ["help", "Hm.", "noted", "Helped."], "the child's conversation")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["noted", "Helped."], "what the parent's model saw")
    refs = await stores.state.list_sub_session_refs("s")
    expect_same([(ref.sub_session_id, ref.status) for ref in refs], [("s/call_1_2", "completed")], "the refs")
    text = "".join(c["delta"] for c in chunks if c["type"] == "text_delta" and c.get("sub_session_id"))
    expect_same(text, "Hm.Helped.", "what the parent's readers saw of the child")
    expect_same(len(of_type(chunks, "state_patch")), 1, "the patches on the parent's stream")
    expect(all("sub_session_id" not in c for c in chunks if c["type"] == "state_patch"), "the child's patches leak")
    own = of_type(await chunks_of(stores, "s/call_1_2"), "output")
    expect_same([chunk["output"] for chunk in own], ["Helped."], "the output on the child's own stream")
    expect_same(rollup.tools["note"].calls if stores.usage else 2, 2, "the calls in the rollup")


@check("X5", "a sub-agent that asks suspends its parent; a response to the root reaches it, and both continue")
async def a_suspended_child(harness: Harness) -> None:
    inner = Agent("inner", tools=[ask])
    child = Agent("child", tools=[inner.as_tool(), note], state=STATE)
    agent = simple_agent(child.as_tool(), note, state=STATE)
    script: dict[str, Script] = {
        "main": [[Call("child", {"input": "a"}), Call("note", {"text": "m"})], "Done."],
        "child": [[Call("inner", {"input": "b"}), Call("note", {"text": "c"})], "Child done."],
        "inner": [[Call("ask", {"question": "?"}, id="the_question")], "Inner done."],
    }
    first = await harness.open_stores()
    async with executing(first, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same(result.status, "suspended_awaiting_children", "the root's status")
    expect_same([wait.tool_name for wait in result.suspended], ["ask"], "what is pending")
    question = result.suspended[0].tool_call_id
    stores = await harness.open_stores()
    root = await stores.state.load_state("s")
    owner = root.client_tool_call_ownership.get(question) if root else None
    expect(owner is not None and owner.startswith("s/call_1_1/"), f"the root knows {owner} as the owner")
    async with executing(stores, ScriptedLLM(script)) as executor:
        expect(not (await executor.can_resume("s")).can_resume, "the root can be resumed without the response")
        receipt = await executor.submit_tool_result("s", question, result="42")
        expect_same(receipt.session_id, owner, "where the response went")
        expect((await executor.can_resume("s")).can_resume, "the root cannot be resumed")
        handle = await executor.resume(agent, "s")
        result = await handle.result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["Child done.", "noted"], "what the root's model saw")
    root = await stores.state.load_state("s")
    expect(root is not None and question in root.completed_client_tool_calls, "the root has no record of the response")
    expect_same(await custom_state(stores, "s/call_1_1"), {"notes": ["c"]}, "the child's state")


@check("X5", "questions of sub-agents that use the same call ids are distinct, also at the root")
async def equal_ids_below_a_root(harness: Harness) -> None:
    stores = await harness.open_stores()
    child = Agent("child", tools=[ask])
    agent = simple_agent(child.as_tool(), ask)
    script: dict[str, Script] = {
        "main": [[Call("ask", {"question": "m"}), *(Call("child", {"input": name}) for name in "ab")], "Done."],
        "child": lambda request: (
            [Call("ask", {"question": request.messages[0]["content"]}, id="call_1_1")]
            if request.messages[-1]["role"] == "user"
            else request.messages[-1]["content"]
        ),
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
        questions = {wait.tool_call_id: wait.input["question"] for wait in result.suspended}
        expect_same(sorted(questions.values()), ["a", "b", "m"], "what is pending, by id")
        for number, (call_id, asked) in enumerate(questions.items()):
            expect(
                not (await executor.can_resume("s")).can_resume,
                f"the session can be resumed after {number} of 3 responses",
            )
            receipt = await executor.submit_tool_result("s", call_id, result=f"answer {asked}")
            expect_same(receipt.status, "accepted", f"the receipt for {asked}")
        result = await (await executor.resume(agent, "s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["answer m", "answer a", "answer b"], "what the root's model saw")


@check("X5", "a sub-agent called with a call id of an earlier step or turn is another child")
async def equal_ids_in_time(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(Agent("child").as_tool())
    calls = [[Call("child", {"input": text}, id="call_2_1")] for text in ("one", "two", "three")]
    script: dict[str, Script] = {
        "main": [calls[0], calls[1], "Done.", calls[2], "Done again."],
        "child": lambda request: f"re: {request.messages[-1]['content']}",
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        for _ in range(2):
            await (await executor.execute(agent, "Go", session_id="s")).result()
    told = [message for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same([message["content"] for message in told], ["re: one", "re: two", "re: three"], "the outputs")
    expect_same(len({message["tool_call_id"] for message in told}), 3, "the number of ids")
    expect_same(len(await stores.state.list_sub_session_refs("s")), 3, "the number of children")


@check("X5", "a persistent sub-agent continues its conversation; an ephemeral one starts a new one")
async def persistent_children(harness: Harness) -> None:
    stores = await harness.open_stores()
    keeps, forgets = Agent("keeps"), Agent("forgets")
    agent = simple_agent(keeps.as_tool(mode="persistent"), forgets.as_tool())
    both = [Call("keeps", {"input": "x"}), Call("forgets", {"input": "y"})]
    script: dict[str, Script] = {"main": [both, both, "Done."], "keeps": ["One.", "Two."], "forgets": ["One."]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        await (await executor.execute(agent, "Go", session_id="s")).result()
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["One.", "One.", "Two.", "One."], "the outputs")
    expect_same(len(await transcript(stores, "s/@keeps")), 4, "the messages of the persistent one")


@check("X5", "a sub-agent that fails is an error for the model, not for the run")
async def a_failing_child(harness: Harness) -> None:
    stores = await harness.open_stores()
    child = Agent("child", tools=[note], state=STATE, max_steps=1)
    script: dict[str, Script] = {
        "main": [[Call("child", {"input": "x"})], "Done."],
        "child": [[Call("note", {"text": "1"})], "never"],
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(simple_agent(child.as_tool()), "Go", session_id="s")).result()
    expect_same(result.status, "completed", "the parent's status")
    told = [message for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told[0]["success"], False, "the call's success")


@check("X5", "a sub-agent called with invalid arguments is not started, and the model sees the error")
async def a_child_called_wrongly(harness: Harness) -> None:
    stores = await harness.open_stores()
    wrong = [Call("child", {"question": "?"}), Call("child", {"input": 5}), Call("child", "no JSON")]
    script: dict[str, Script] = {"main": [[*wrong, Call("child", {"input": "x"})], "Done."], "child": ["Helped."]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(simple_agent(Agent("child").as_tool()), "Go", session_id="s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same([message["success"] for message in told], [False, False, False, True], "which calls succeeded")
    expect(all("Invalid arguments" in message["content"] for message in told[:3]), f"the model saw {told}")
    refs = await stores.state.list_sub_session_refs("s")
    expect_same([ref.sub_session_id for ref in refs], ["s/call_1_4"], "the children")


@check("X5", "a message to a parent whose sub-agent waits ends the sub-agent, also for its own readers")
async def a_message_instead_below(harness: Harness) -> None:
    stores = await harness.open_stores()
    child = Agent("child", tools=[ask])
    agent = simple_agent(child.as_tool())
    script: dict[str, Script] = {
        "main": [[Call("child", {"input": "x"})], "Done."],
        "child": [[Call("ask", {"question": "?"})], "never"],
    }
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
        expect_same(result.status, "suspended_awaiting_children", "the parent")
        result = await (await executor.resume(agent, "s", message="Never mind.")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same([message["success"] for message in told], [False], "the call's success")
    below = await stores.state.load_state("s/call_1_1")
    got = None if below is None else [below.status, below.failure_reason]
    expect_same(got, ["failed", "parent_moved_on"], "the child")
    info = await stores.streams.get_stream_info("s/call_1_1")
    expect(info is not None and info.status == "failed", f"the child's stream is {info and info.status}")
    refs = await stores.state.list_sub_session_refs("s")
    expect_same([ref.status for ref in refs], ["failed"], "the refs")


@check("X5", "a sub-agent that exceeds its timeout fails with the reason parent_timeout")
async def a_slow_child(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def forever() -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "never"

    child = Agent("child", tools=[forever])
    agent = simple_agent(child.as_tool(timeout_seconds=0.2))
    script: dict[str, Script] = {"main": [[Call("child", {"input": "x"})], "Done."], "child": [[Call("forever")]]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same(result.status, "completed", "the parent's status")
    below = await stores.state.load_state("s/call_1_1")
    got = None if below is None else [below.status, below.failure_reason]
    expect_same(got, ["failed", "parent_timeout"], "the child")


@check("X5", "a sub-agent that runs when its parent is suspended is interrupted with a reason, and resumes with it")
async def a_child_of_a_suspended_parent(harness: Harness) -> None:
    stores = await harness.open_stores()
    child = Agent("child")
    agent = simple_agent(ask, child.as_tool())
    calls = [Call("ask", {"question": "?"}), Call("child", {"input": "x"})]
    slow: dict[str, Script] = {"main": [calls, "Done."], "child": ["word " * 2000]}
    llm = ScriptedLLM(slow, delay_seconds=0.01, piece=5)
    async with executing(stores, llm, suspend_grace_seconds=0.05) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
        expect_same(result.status, "suspended_client_tool", "the parent")
    below = await stores.state.load_state("s/call_1_2")
    got = None if below is None else [below.status, below.failure_reason]
    expect_same(got, ["interrupted", "parent_suspended"], "the child")
    fast: dict[str, Script] = {"main": [calls, "Done."], "child": ["Short."]}
    async with executing(stores, ScriptedLLM(fast)) as executor:
        await executor.submit_tool_result("s", "call_1_1", result="yes")
        result = await (await executor.resume(agent, "s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["yes", "Short."], "what the parent's model saw")
    below = await stores.state.load_state("s/call_1_2")
    got = None if below is None else [below.status, below.failure_reason]
    expect_same(got, ["completed", None], "the child at the end")


@check("X5", "a parent takes back a sub-agent that another process took over, and the stream says so")
async def a_child_taken_away(harness: Harness) -> None:
    stores = await harness.open_stores()
    ahead = Clockwork()
    ahead.pass_seconds(3600)
    started, taken = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait until another process has taken over the session."""
        started.set()
        await taken.wait()
        return "waited"

    child = Agent("child", tools=[wait])
    agent = simple_agent(child.as_tool())
    script: dict[str, Script] = {
        "main": [[Call("child", {"input": "x"})], "Done."],
        "child": [Reply("I wait.", [Call("wait")]), "Child done."],
    }
    async with (
        executing(stores, ScriptedLLM(script)) as executor,
        executing(stores, ScriptedLLM(script), clock=ahead) as other,
    ):
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        await other.resume(child, "s/call_1_1")
        taken.set()
        result = await asyncio.wait_for(handle.result(), 60)
    expect_same([result.status, result.output], ["completed", "Done."], "the parent")
    told = [message["content"] for message in await transcript(stores, "s") if message["role"] == "tool"]
    expect_same(told, ["Child done."], "what the parent's model saw")
    names = [chunk["name"] for chunk in of_type(await chunks_of(stores, "s"), "custom")]
    expect("subagent_rewound" in names, "the parent's stream has no marker to drop what the lost run had shown")


@check("X5", "deleting a session deletes its descendants and their streams, even while they run")
async def deleting_cascades(harness: Harness) -> None:
    stores = await harness.open_stores()
    started = asyncio.Event()

    @tool
    async def forever() -> str:
        """Never end."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    child = Agent("child", tools=[forever])
    script: dict[str, Script] = {"main": [[Call("child", {"input": "x"})], "Done."], "child": [[Call("forever")]]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        handle = await executor.execute(simple_agent(child.as_tool()), "Go", session_id="s")
        await started.wait()
        expect(await executor.delete_session("s"), "there was nothing to delete")
        try:
            await asyncio.wait_for(handle.result(), 20)
        except Exception as error:
            expect(not isinstance(error, TimeoutError), "the run continues after its session was deleted")
    for session_id in ("s", "s/call_1_1"):
        expect(not await stores.state.session_exists(session_id), f"session {session_id} still exists")
        expect(await stores.streams.get_stream_info(session_id) is None, f"stream {session_id} still exists")


@check("X5", "deleting a session that runs in another process waits until it has stopped")
async def deleting_waits(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    started = asyncio.Event()
    fate: list[str] = []

    @tool
    async def forever() -> str:
        """Never end, and take a while to clean up."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0.001)
            fate.append("stopped")
        return "never"

    llm = ScriptedLLM([[Call("forever")]])
    async with executing(stores, llm, poll_seconds=0.005) as executor, executing(other, llm) as elsewhere:
        handle = await executor.execute(simple_agent(forever), "Go", session_id="s")
        await started.wait()
        expect(await elsewhere.delete_session("s"), "there was nothing to delete")
        expect_same(fate, ["stopped"], "the state of the tool by then")
        result = await asyncio.wait_for(handle.result(), 20)
    expect_same([result.status, result.failure_reason], ["failed", "aborted"], "the result")


@check("X5", "a session is deleted with its descendants, even if parents form a cycle, and nothing else is deleted")
async def deleting_follows_one_rule(harness: Harness) -> None:
    stores = await harness.open_stores()
    for session_id, parent, stream_id in (
        ("s", "t", None),
        ("t", "s", None),
        ("guest", "s", "other"),
        ("other", None, None),
    ):
        await stores.state.create_session(session_id, agent_type="main", parent_session_id=parent, stream_id=stream_id)
        async with await stores.streams.create_writer(session_id, "run", "main") as writer:
            await writer.write({"type": "text_delta", "delta": "x"})
        if stores.usage is not None:
            entry = {"kind": "custom", "id": "e", "session_id": session_id, "name": "calls", "value": 1}
            await stores.usage.record_entry(entry)
    async with executing(stores, ScriptedLLM([])) as executor:
        expect(await executor.delete_session("s"), "there was nothing to delete")
        expect(not await executor.delete_session("s"), "deleted twice")
    for session_id in ("s", "t"):
        expect(not await stores.state.session_exists(session_id), f"session {session_id} still exists")
        expect(await stores.streams.get_stream_info(session_id) is None, f"stream {session_id} still exists")
    expect(await stores.streams.get_stream_info("other") is not None, "the stream of another session was deleted")
    if stores.usage is not None:
        left = [len(await stores.usage.get_entries(each)) for each in ("s", "t", "guest", "other")]
        expect_same(left, [0, 0, 0, 1], "usage entries left")
