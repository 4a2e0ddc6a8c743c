"""What a run does with outputs, hooks, and models and tools that misbehave; on memory, since no store matters."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from helix_agents.agent import Agent
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.conformance.executor.harness import Clockwork
from helix_agents.errors import AlreadyRunning, InvalidArgument, ModelError, NotResumable, RunLost, SessionNotFound
from helix_agents.executor import AgentExecutor, AgentResult, Hooks, RetryPolicy, RunHandle
from helix_agents.executor.run.hooks import RunInfo
from helix_agents.llm import Call, Reply, ScriptedLLM
from helix_agents.llm.contract import ModelEvent, ModelRequest, TextDelta
from helix_agents.llm.scripted import Line, Script
from helix_agents.messages import Message
from helix_agents.stores.usage import contract as usage
from helix_agents.tools import Tool, ToolContext, tool
from helix_agents.tools.context import MAX_AMOUNT
from helix_agents.types import RunRecord

QUICK = RetryPolicy(first_wait_seconds=0.001)
AGAIN = ModelError("busy", retryable=True)


@dataclass
class Report:
    title: str
    pages: int = 1


class Verdict(pydantic.BaseModel):
    score: int = pydantic.Field(ge=0, le=10)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with open_stores("memory:") as opened:
        yield opened


async def run(stores: Stores, agent: Agent, script: Script, **options: Any) -> AgentResult:
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM(script), retry=QUICK, **options) as executor:
        return await (await executor.execute(agent, "Go", session_id="s")).result()


async def test_the_session_of_a_key_cannot_be_computed_from_the_request() -> None:
    found = set()
    for _ in range(2):
        async with open_stores("memory:") as fresh, AgentExecutor(fresh, ScriptedLLM(["Done."])) as executor:
            handle = await executor.execute(Agent("a"), "Go", idempotency_key="k", user_id="ann")
            found.add(handle.session_id)
            await handle.result()
    assert len(found) == 2


async def told(stores: Stores) -> list[Message]:
    return [m for m in (await stores.state.get_messages("s", limit=None)).items if m["role"] == "tool"]


async def chunk_types(stores: Stores) -> list[str]:
    return [stored.chunk["type"] for stored in await stores.streams.get_all_chunks("s")]


# -- structured output


async def test_structured_output_comes_from_the_finish_tool(stores: Stores) -> None:
    agent = Agent("main", output=Report)
    result = await run(stores, agent, [[Call("finish", {"title": "Ants"})]])
    assert (result.status, result.output) == ("completed", Report(title="Ants", pages=1))


async def test_invalid_output_goes_back_to_the_model_with_the_reason(stores: Stores) -> None:
    script: Script = [[Call("finish", {"score": 11})], [Call("finish", {"score": 9})]]
    result = await run(stores, Agent("main", output=Verdict), script)
    assert result.output == Verdict(score=9)
    assert "less than or equal to 10" in (await told(stores))[0]["content"]


async def test_arguments_of_the_finish_tool_that_are_no_object_are_no_output(stores: Stores) -> None:
    @dataclass
    class Verdicts:
        notes: str = "none"

    script: Script = [[Call("finish", "[1]")], [Call("finish", {"notes": "fine"})]]
    result = await run(stores, Agent("main", output=Verdicts), script)
    assert result.output == Verdicts(notes="fine")
    assert "one JSON object" in (await told(stores))[0]["content"]


async def test_text_instead_of_the_finish_tool_is_reminded(stores: Stores) -> None:
    result = await run(stores, Agent("main", output=Report), ["Done!", [Call("finish", {"title": "Ants"})]])
    assert result.output == Report(title="Ants", pages=1)


async def test_an_output_that_is_no_object_is_wrapped(stores: Stores) -> None:
    agent = Agent("main", output=list[int])
    assert agent.tool_specs()[0].input_schema["required"] == ["output"]
    result = await run(stores, agent, [[Call("finish", {"output": [1, 2]})]])
    assert result.output == [1, 2]


# -- tools that misbehave


@tool
def wrong_type() -> object:
    """Answer with something that is not JSON."""
    return threading.Lock()


@tool
async def explode() -> str:
    """Raise."""
    raise RuntimeError("boom")


TIMED_OUT, LATE_WRITE_REJECTED = threading.Event(), threading.Event()
"""Set once the run has ended, and once the write of the thread that outlived it was rejected."""


@tool(timeout_seconds=0.05)
async def slow(ctx: ToolContext) -> str:
    """Write, then take too long."""
    ctx.update_state(lambda draft: draft.update(wrote=True))
    await asyncio.sleep(60)
    return "never"


@tool(timeout_seconds=0.05)
def slow_thread(ctx: ToolContext) -> str:
    """Take too long in a thread, which cannot be stopped, and try to write afterwards."""
    assert TIMED_OUT.wait(60)
    try:
        ctx.update_state(lambda draft: draft.update(late=True))
    except InvalidArgument:
        LATE_WRITE_REJECTED.set()
    return "never"


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (Call("wrong_type"), "not JSON"),
        (Call("explode"), "RuntimeError: boom"),
        (Call("slow"), "did not finish within 0.05 seconds"),
        (Call("slow_thread"), "did not finish within 0.05 seconds"),
        (Call("echo", {"text": 3}), "Invalid arguments"),
        (Call("echo", '{"text": '), "one JSON object"),
        (Call("echo", "[1]"), "one JSON object"),
        (Call("nothing_like_it"), "There is no tool 'nothing_like_it'"),
    ],
    ids=lambda value: value.name if isinstance(value, Call) else "",
)
async def test_whatever_goes_wrong_with_a_call_is_an_error_for_the_model(
    stores: Stores, call: Call, words: str
) -> None:
    agent = Agent("main", tools=[wrong_type, explode, slow, slow_thread, echo], state={})
    result = await run(stores, agent, [[call, Call("echo", {"text": "fine"})], "Done."])
    bad, good = await told(stores)
    assert words in bad["content"]
    assert (bad["success"], good["success"], result.output) == (False, True, "Done.")
    if call.name == "slow_thread":
        TIMED_OUT.set()
        assert await asyncio.to_thread(LATE_WRITE_REJECTED.wait, 10)
    session = await stores.state.load_state("s")
    assert session is not None
    assert session.custom_state == {}


async def test_sync_tools_run_side_by_side_in_threads(stores: Stores) -> None:
    barrier = threading.Barrier(3, timeout=10)

    @tool
    def meet(ctx: ToolContext) -> int:
        """Wait for the others."""
        ctx.update_state(lambda draft: draft.increment("n"))
        return barrier.wait() * 0

    await run(stores, Agent("main", tools=[meet], state={"n": 0}), [[Call("meet")] * 3, "Done."])
    session = await stores.state.load_state("s")
    assert session is not None
    assert session.custom_state == {"n": 3}


async def test_values_of_any_known_type_become_json(stores: Stores) -> None:
    @tool
    def make() -> list[Any]:
        """Make things."""
        return [Report("Ants"), Verdict(score=1), {"t": (1, 2)}]

    await run(stores, Agent("main", tools=[make]), [[Call("make")], "Done."])
    assert (await told(stores))[0]["content"] == '[{"title":"Ants","pages":1},{"score":1},{"t":[1,2]}]'


# -- models that misbehave


async def test_an_error_that_may_pass_is_tried_again_and_readers_see_only_the_good_answer(stores: Stores) -> None:
    tries: list[Line] = [Reply("Brok", fail_with=AGAIN), AGAIN, "Whole."]
    result = await run(stores, Agent("main"), [tries])
    chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    assert result.output == "Whole."
    assert "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text_delta") == "Whole."


async def test_too_many_errors_fail_the_run(stores: Stores) -> None:
    result = await run(stores, Agent("main"), [AGAIN])
    assert (result.status, result.error) == ("failed", "busy")


async def test_an_error_that_will_not_pass_fails_the_run_and_is_kept(stores: Stores) -> None:
    result = await run(stores, Agent("main"), [ModelError("no such model")])
    session = await stores.state.load_state("s")
    current = await stores.state.get_current_run("s")
    info = await stores.streams.get_stream_info("s")
    assert session is not None
    assert current is not None
    assert info is not None
    assert (result.status, result.error) == ("failed", "no such model")
    assert (session.status, session.failure_reason, session.error) == ("failed", "model_error", "no such model")
    assert (current.status, current.error, info.status) == ("failed", "no such model", "failed")
    assert (await chunk_types(stores))[-1] == "error"


async def test_a_broken_adapter_fails_the_run(stores: Stores) -> None:
    class Broken:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            raise KeyError("oops")
            yield

    async with AgentExecutor(stores.state, stores.streams, Broken()) as executor:
        result = await (await executor.execute(Agent("main"), "Go")).result()
    assert result.status == "failed"
    assert "KeyError" in (result.error or "")


async def test_tool_call_ids_that_cannot_be_keys_are_replaced(stores: Stores) -> None:
    calls = [Call("echo", {"text": text}, id=id) for text, id in (("a", "{x}"), ("b", "same"), ("c", "same"))]
    await run(stores, Agent("main", tools=[echo]), [calls, [Call("echo", {"text": "d"}, id="same")], "Done."])
    assert [(m["tool_call_id"], m["content"]) for m in await told(stores)] == [
        ("call_1_1", "a"),
        ("same", "b"),
        ("call_1_3", "c"),
        ("call_2_1", "d"),
    ]


# -- agents


async def test_instructions_may_follow_from_the_state(stores: Stores) -> None:
    agent = Agent("main", instructions=lambda state: f"You are {state['mood']}.", state={"mood": "kind"})
    llm = ScriptedLLM(["Hi."])
    async with AgentExecutor(stores.state, stores.streams, llm) as executor:
        await (await executor.execute(agent, "Go")).result()
    assert llm.requests[0].instructions == "You are kind."


async def test_an_agent_may_have_its_own_model(stores: Stores) -> None:
    agent = Agent("main", llm=ScriptedLLM(["Mine."]))
    assert (await run(stores, agent, ["Yours."])).output == "Mine."


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agent("main", tools=[echo, echo]),
        lambda: Agent("main", tools=[print]),  # type: ignore[list-item]
        lambda: Agent("main", tools=[Tool(lambda: 1, name="finish")], output=Report),
        lambda: Agent("main", state=Report),
        lambda: Agent("main", max_steps=0),
        lambda: Agent("", tools=[]),
    ],
)
def test_agents_that_cannot_work_are_refused_at_once(make: Any) -> None:
    with pytest.raises(InvalidArgument):
        make()


# -- handles


async def test_another_process_can_find_a_run_by_the_name_of_its_agent(stores: Stores) -> None:
    await run(stores, Agent("main"), ["Done."])
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([]), agents=[Agent("main")]) as other:
        handle = await other.get_handle("main", "s")
        assert handle is not None
        assert (await handle.result()).output == "Done."
        assert (await handle.can_resume()).can_resume is False
        assert [chunk["type"] async for chunk in handle.stream()][-1] == "output"
        assert await other.get_handle("main", "nobody") is None
        with pytest.raises(NotResumable, match="completed"):
            await handle.resume()
        with pytest.raises(InvalidArgument, match="No agent 'other'"):
            await other.resume("other", "s")
        with pytest.raises(SessionNotFound):
            await other.resume("main", "nobody")


async def test_the_session_of_another_agent_is_refused(stores: Stores) -> None:
    await run(stores, Agent("main"), ["Done."])
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([])) as executor:
        with pytest.raises(InvalidArgument, match="belongs to agent 'main'"):
            await executor.execute(Agent("other"), "Go", session_id="s")


async def test_closing_an_executor_leaves_its_runs_to_others_at_once(stores: Stores) -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait, the first time."""
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()
        return "ok"

    agent = Agent("main", tools=[wait])
    llm = ScriptedLLM([[Call("wait")], "Done."])
    async with AgentExecutor(stores.state, stores.streams, llm, lease_seconds=3600) as executor:
        await executor.execute(agent, "Go", session_id="s")
        await started.wait()
    async with AgentExecutor(stores.state, stores.streams, llm) as other:
        assert (await other.can_resume("s")).can_resume
        assert (await (await other.resume(agent, "s")).result()).output == "Done."


# -- hooks


class Listening(Hooks):
    def __init__(self) -> None:
        self.heard: list[str] = []

    async def run_started(self, run: RunInfo) -> None:
        self.heard.append("run")

    async def run_ended(self, run: RunInfo, status: str, error: str | None) -> None:
        self.heard.append(f"/run {status}")

    async def step_started(self, run: RunInfo, step: int) -> None:
        self.heard.append(f"step {step}")

    async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
        self.heard.append(f"/step {step}")

    async def model_started(self, run: RunInfo, step: int, attempt: int) -> None:
        self.heard.append(f"model {attempt}")

    async def model_ended(self, run: RunInfo, step: int, message: Message | None, error: str | None) -> None:
        self.heard.append("/model")

    async def tool_started(self, run: RunInfo, step: int, call: dict[str, Any]) -> None:
        self.heard.append(call["name"])

    async def tool_ended(self, run: RunInfo, step: int, call: dict[str, Any], outcome: Any) -> None:
        self.heard.append(f"/{call['name']}")


async def test_hooks_hear_everything_in_order(stores: Stores) -> None:
    hooks = Listening()
    tries: list[Line] = [AGAIN, [Call("echo", {"text": "a"})]]
    await run(stores, Agent("main", tools=[echo]), [tries, "Done."], hooks=[hooks])
    first = ["run", "step 1", "model 1", "/model", "model 2", "/model", "echo", "/echo", "/step 1"]
    assert hooks.heard == [*first, "step 2", "model 1", "/model", "/step 2", "/run completed"]


async def test_a_hook_that_fails_breaks_nothing(stores: Stores) -> None:
    class Bad(Hooks):
        async def run_started(self, run: RunInfo) -> None:
            raise RuntimeError("hook")

        async def tool_ended(self, *args: Any) -> None:
            raise RuntimeError("hook")

    result = await run(stores, Agent("main", tools=[echo]), [[Call("echo", {"text": "a"})], "Done."], hooks=[Bad()])
    assert result.output == "Done."


# -- things that go wrong outside of tools


async def test_waiting_for_a_run_of_a_closed_executor_says_that_it_was_lost(stores: Stores) -> None:
    started = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait without end."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([[Call("wait")]])) as executor:
        handle = await executor.execute(Agent("main", tools=[wait]), "Go", session_id="s")
        await started.wait()
    with pytest.raises(RunLost, match="closed"):
        await handle.result()


@pytest.mark.parametrize("wrong", [None, 5, b"Go", ["Go"], [{"role": "user", "content": "Go"}, None]], ids=repr)
async def test_an_input_that_is_no_message_is_refused(stores: Stores, wrong: Any) -> None:
    async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([])) as executor:
        with pytest.raises(InvalidArgument):
            await executor.execute(Agent("main"), wrong, session_id="s")
    assert not await stores.state.session_exists("s")


@pytest.mark.parametrize("raised", [SystemExit(2), asyncio.CancelledError()], ids=repr)
async def test_an_adapter_that_gives_up_oddly_fails_the_run(stores: Stores, raised: BaseException) -> None:
    class Odd:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            raise raised
            yield

    async with AgentExecutor(stores.state, stores.streams, Odd()) as executor:
        result = await (await executor.execute(Agent("main"), "Go")).result()
    assert result.status == "failed"
    assert "adapter" in (result.error or "")


async def test_a_made_up_id_is_never_one_that_the_model_uses(stores: Stores) -> None:
    first = [Call("echo", {"text": "a"}, id="call_2_1"), Call("echo", {"text": "b"}, id="call_2_1_2")]
    again = [Call("echo", {"text": "c"}, id="call_2_1")]
    await run(stores, Agent("main", tools=[echo]), [first, again, "Done."])
    assert [(m["tool_call_id"], m["content"]) for m in await told(stores)] == [
        ("call_2_1", "a"),
        ("call_2_1_2", "b"),
        ("call_2_1_3", "c"),
    ]


async def test_hooks_that_are_written_wrongly_break_nothing(stores: Stores) -> None:
    class Plain(Hooks):
        def step_started(self, run: RunInfo, step: int) -> Any:
            raise RuntimeError("not even a coroutine")

        def run_ended(self, *args: Any) -> Any:
            return None

        async def tool_started(self, run: RunInfo) -> None:  # type: ignore[override]  # the point of the test
            raise AssertionError("nobody can call this")

    agent = Agent("main", tools=[echo])
    result = await run(stores, agent, [[Call("echo", {"text": "a"})], "Done."], hooks=[Plain()])
    assert result.output == "Done."


def test_amounts_are_bounded_as_the_usage_stores_have_it() -> None:
    assert MAX_AMOUNT == usage.MAX_AMOUNT


class EndsBetweenTwoReads(InMemoryStateStore):
    """The run ends between two reads of a caller: of the session and of its record."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], Awaitable[object]]] = []

    async def get_current_run(self, session_id: str) -> RunRecord | None:
        if self.meanwhile:
            await self.meanwhile.pop()()
        return await super().get_current_run(session_id)


async def test_a_run_that_ends_between_two_reads_has_not_crashed(stores: Stores) -> None:
    gate = asyncio.Event()

    class Waits:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            await gate.wait()
            yield TextDelta("Done.")

    store = EndsBetweenTwoReads()
    async with AgentExecutor(store, stores.streams, Waits()) as executor:
        handle = await executor.execute(Agent("a"), "Go", session_id="s")

        async def end() -> None:
            gate.set()
            await handle.result()

        store.meanwhile.append(end)
        assert not (await executor.can_resume("s")).can_resume


# -- long lives


async def test_a_long_run_does_not_hold_on_to_what_it_has_done(stores: Stores) -> None:
    steps, held = 20, []

    @tool
    async def look() -> str:
        """Count the jobs that are done and still remembered."""
        gc.collect()
        held.append(sum(isinstance(each, asyncio.Future) and each.done() for each in gc.get_objects()))
        return "ok"

    gc.collect()
    gc.freeze()  # objects from before are not counted
    await run(stores, Agent("main", tools=[look], max_steps=steps + 1), [*[[Call("look")]] * steps, "Done."])
    assert len(held) == steps
    assert held[-1] < held[2] + steps // 2


async def test_a_turn_after_its_stream_has_expired_is_read_from_its_beginning() -> None:
    clock = Clockwork()
    streams = InMemoryStreamManager(ttl=60, clock=clock)
    async with AgentExecutor(InMemoryStateStore(), streams, ScriptedLLM(["One.", "Two."])) as executor:
        await (await executor.execute(Agent("main"), "1", session_id="s")).result()
        clock.pass_seconds(61)
        assert await streams.get_stream_info("s") is None
        handle = await executor.execute(Agent("main"), "2", session_id="s")
        types = [chunk["type"] async for chunk in handle.stream()]
        assert (types[0], types[-1], (await handle.result()).output) == ("run_started", "output", "Two.")
        again = await executor.get_handle(Agent("main"), "s")
        assert again is not None
        assert [chunk["type"] async for chunk in again.stream()] == types


async def test_who_waits_for_a_stream_gets_it_and_is_told_when_there_is_nothing_to_wait_for(stores: Stores) -> None:
    async def types(handle: RunHandle) -> list[str]:
        return [chunk["type"] async for chunk in handle.stream(wait=True)]

    async with AgentExecutor(stores, ScriptedLLM(["Hi."])) as executor:
        handle = await executor.submit(Agent("main"), "Go", session_id="s")
        await stores.streams.delete_stream("s")
        reading = asyncio.create_task(types(handle))
        for _ in range(20):
            await asyncio.sleep(0)
        for taken in await executor.recover():
            await taken.result()
        assert (await asyncio.wait_for(reading, 30))[-1] == "output"
        await executor.delete_session("s")
        with pytest.raises(SessionNotFound):
            await asyncio.wait_for(types(handle), 30)


async def test_a_view_that_was_left_reads_nothing_more(stores: Stores) -> None:
    async with AgentExecutor(stores, ScriptedLLM(["Hi."])) as executor:
        await executor.run(Agent("main"), "Go", session_id="s")
        async with executor.watch("s") as view:
            chunks = aiter(view)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(chunks), 30)


async def test_a_session_that_runs_says_until_when_its_lease_holds(stores: Stores) -> None:
    clock, working = Clockwork(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work without end."""
        working.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent("main", tools=[work])
    async with AgentExecutor(stores, ScriptedLLM([[Call("work")]]), lease_seconds=100, clock=clock) as executor:
        await executor.execute(agent, "Go", session_id="s")
        await working.wait()
        run = await stores.state.get_current_run("s")
        assert run is not None
        for attempt in (executor.execute(agent, "Again", session_id="s"), executor.resume(agent, "s")):
            with pytest.raises(AlreadyRunning, match=r"can be resumed after 20..-..-..T") as raised:
                await attempt
            assert raised.value.lease_until == run.lease_until
