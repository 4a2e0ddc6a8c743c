"""How many store calls a run makes before it calls the model: each is a round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from helix_agents import AgentExecutor
from helix_agents.backends.inmemory.state_store import InMemoryBeside
from helix_agents.conformance.executor.harness import Clockwork, Parts, make_executor, simple_agent
from helix_agents.conformance.executor.x9_standing import Gated, ask
from helix_agents.executor.stream import fenced
from helix_agents.inmemory import InMemoryStateStore, InMemoryStreamManager, InMemoryUsageStore
from helix_agents.llm.scripted import Call, Reply, ScriptedLLM
from helix_agents.tools import tool

AGENT = simple_agent(ask)


class Counting:
    """Passes calls on, and counts them."""

    def __init__(self, inner: Any, calls: list[str], *, together: bool = False) -> None:
        self._inner = inner
        self._calls = calls
        self._together = together

    def carries(self, streams: object, usage: object) -> bool:
        """The streams are wrapped as well, so the store does not recognize them."""
        return self._together

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            self._calls.append(name)
            return await found(*args, **options)

        return call


async def first(executor: AgentExecutor) -> None:
    await executor.execute(AGENT, "Go", session_id="new")


async def following(executor: AgentExecutor) -> None:
    await executor.execute(AGENT, "Go", session_id="done")


async def queued(executor: AgentExecutor) -> None:
    await executor.recover()


async def recovered(executor: AgentExecutor) -> None:
    await executor.recover()


async def answered(executor: AgentExecutor) -> None:
    await executor.resume(AGENT, "answered")


async def prepare(stores: Parts, clock: Clockwork, act: Callable[..., Any]) -> None:
    async with make_executor(stores, ScriptedLLM(["One."]), clock=clock) as executor:
        if act is following:
            await executor.run(AGENT, "Go", session_id="done")
        if act is queued:
            await executor.submit(AGENT, "Go", session_id="queued")
    if act is recovered:
        llm = Gated(["Never said."])
        dead = make_executor(stores, llm, clock=clock)
        await dead.execute(AGENT, "Go", session_id="dead")
        await llm.reached.wait()
        await dead.close()
        clock.pass_seconds(60)
    if act is answered:
        async with make_executor(stores, ScriptedLLM([[Call("ask")]]), clock=clock) as executor:
            await executor.run(AGENT, "Go", session_id="answered")
            session = await stores.state.load_state("answered")
            assert session is not None
            await executor.submit_tool_result("answered", next(iter(session.pending_client_tool_calls)), result=1)


TOGETHER, APART = True, False


@pytest.mark.parametrize(
    ("act", "together", "most"),
    [
        (first, TOGETHER, 2),
        (following, TOGETHER, 2),
        (queued, TOGETHER, 5),
        (recovered, TOGETHER, 8),
        (answered, TOGETHER, 7),
        (first, APART, 6),
        (following, APART, 4),
        (queued, APART, 5),
        (recovered, APART, 10),
        (answered, APART, 7),
    ],
)
async def test_calls_before_the_model_is_asked(
    act: Callable[[AgentExecutor], Awaitable[None]], together: bool, most: int
) -> None:
    streams, clock, calls = InMemoryStreamManager(), Clockwork(), list[str]()
    store = InMemoryStateStore(beside=InMemoryBeside(streams, InMemoryUsageStore()))
    stores = Parts(store, streams, None)
    await prepare(stores, clock, act)
    counted = Parts(cast(Any, Counting(store, calls, together=together)), cast(Any, Counting(streams, calls)), None)
    llm = Gated(["Done."])
    async with make_executor(counted, llm, clock=clock, agents=[AGENT], poll_seconds=600) as executor:
        acting = asyncio.ensure_future(act(executor))
        await llm.reached.wait()
        seen = list(calls)
        llm.go.set()
        await acting
    assert len(seen) <= most, seen


READS = ("get_", "list_", "load_")


@pytest.mark.parametrize("unfinished", [recovered, answered])
async def test_a_submit_to_an_unfinished_turn_is_one_write(unfinished: Callable[..., Any]) -> None:
    stores, clock, calls = Parts(InMemoryStateStore(), InMemoryStreamManager(), None), Clockwork(), list[str]()
    await prepare(stores, clock, unfinished)
    counted = Parts(cast(Any, Counting(stores.state, calls)), stores.streams, None)
    async with make_executor(counted, ScriptedLLM(["Done."]), clock=clock, agents=[AGENT]) as executor:
        await executor.submit(AGENT, "More", session_id="dead" if unfinished is recovered else "answered")
    assert len([name for name in calls if not name.startswith(READS)]) == 1, calls


class CountingStreams(InMemoryStreamManager):
    """Streams that count the writes of their own."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self._calls = calls

    async def _append(self, stream_id: str, **options: Any) -> int:
        self._calls.append("append")
        return await super()._append(stream_id, **options)


COMMIT = "save_state_and_promote_staging"


@pytest.mark.parametrize(
    ("text", "idempotent", "step"),
    [
        ("", False, ["stage_calls", COMMIT]),
        ("I look it up.", False, ["stage_calls", COMMIT]),
        ("", True, [COMMIT]),
        ("I look it up.", True, ["append", COMMIT]),  # text does not wait for the end of the tools
    ],
)
async def test_a_step_waits_for_two_writes_at_most(
    text: str, idempotent: bool, step: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced, "LINGER_SECONDS", 3600)

    @tool(idempotent=idempotent)
    async def look(n: int) -> str:
        """Look something up."""
        return "found"

    calls: list[str] = []
    streams = CountingStreams(calls)
    store = InMemoryStateStore(beside=InMemoryBeside(streams, InMemoryUsageStore()))
    stores = Parts(cast(Any, Counting(store, calls, together=True)), streams, None)
    looks = [Call("look", {"n": 1}), Call("look", {"n": 2})]
    async with make_executor(stores, ScriptedLLM([Reply(text, looks), Reply(text, looks), "Done."])) as executor:
        await executor.run(simple_agent(look), "Go", session_id="s")
    assert [name for name in calls if not name.startswith(READS)] == ["create_session", *step, *step, COMMIT]
