"""X2: stores that are briefly or permanently unreachable, or behind a blocked event loop, and who sees an error."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from typing import Any, cast

from ...errors import RunLost, StoreUnavailable
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from ..registry import NotApplicable
from .harness import Clockwork, Parts, check, make_executor, simple_agent, transcript
from .mortal import Died, Life

PATIENCE_SECONDS = 30


class _Outage:
    """Stores on which every `every`-th call fails twice: its reply is lost, and its retry does not arrive."""

    def __init__(self, every: int) -> None:
        self._calls = 0
        self._every = every
        self.replies_lost = 0

    def wrap(self, stores: StoreSet) -> Parts:
        return Parts(self._wrapped(stores.state), stores.streams, self._wrapped(stores.usage))

    def _wrapped(self, inner: Any) -> Any:
        return cast(Any, inner if inner is None else _Flaky(inner, self))

    async def call(self, method: Any, args: Any, kwargs: Any) -> Any:
        self._calls += 1
        place = self._calls % self._every
        if place == 1:
            raise StoreUnavailable("The kit's outage: the call did not arrive.")
        answer = await method(*args, **kwargs)
        if place == 0:
            self.replies_lost += 1
            raise StoreUnavailable("The kit's outage: the reply was lost.")
        return answer


class _Flaky:
    def __init__(self, inner: Any, outage: _Outage) -> None:
        self._inner = inner
        self._outage = outage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "carries":
            return lambda streams, usage: found(streams, usage._inner if isinstance(usage, _Flaky) else usage)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._outage.call(found, args, kwargs)

        return call


@tool
async def work(n: int, ctx: ToolContext) -> str:
    """Work."""
    ctx.update_state(lambda draft: draft.increment("done", n))
    return f"did {n}"


@check("X2", "a run survives a state store that loses calls and replies, and nothing happens twice", kind="faults")
async def rides_out_outages(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(work, state={"done": 0})
    script: Script = [[Call("work", {"n": 1}), Call("work", {"n": 2})], [Call("work", {"n": 4})], "Done."]
    await (await make_executor(stores, ScriptedLLM(script)).execute(agent, "Go", session_id="calm")).result()
    expected = await transcript(stores, "calm")
    lost = 0
    for every in range(3, 12):
        session_id, outage = f"every {every}", _Outage(every)
        executor = make_executor(outage.wrap(stores), ScriptedLLM(script), poll_seconds=60)
        async with asyncio.timeout(PATIENCE_SECONDS):
            result = await (await executor.execute(agent, "Go", session_id=session_id)).result()
        expect_same([result.status, result.error], ["completed", None], f"{session_id}: the result")
        expect_same(await transcript(stores, session_id), expected, f"{session_id}: the conversation")
        session = await stores.state.load_state(session_id)
        assert session is not None
        expect_same([session.custom_state, session.step_count], [{"done": 7}, 3], f"{session_id}: the state")
        statuses = [run.status for run in await stores.state.list_runs(session_id)]
        expect_same(statuses, ["completed"], f"{session_id}: the runs")
        lost += outage.replies_lost
    expect(lost > 10, f"only {lost} replies were lost, too few for this check")


@check("X2", "a reader of a lost run gets an error that says so, and retains all that it read before", kind="faults")
async def readers_learn_of_a_lost_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent, clock = simple_agent(work, state={"done": 0}), Clockwork()
    life = Life(commits=1)
    dying = make_executor(life.wrap(stores), ScriptedLLM([[Call("work", {"n": 1})], "Done."]), clock=clock)
    handle = await dying.execute(agent, "Go", session_id="s")
    seen: list[str] = []
    with raises(Died, "reading the stream of a run whose stores are gone"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for chunk in handle.stream():
                seen.append(chunk["type"])
    await life.bury()
    await dying.close()
    clock.pass_seconds(3600)
    other = make_executor(stores, ScriptedLLM(["Done."]), clock=clock)
    elsewhere = await other.get_handle(agent, "s")
    assert elsewhere is not None
    again: list[str] = []
    with raises(RunLost, "reading the stream of a process that died"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for chunk in elsewhere.stream():
                again.append(chunk["type"])
    expect("tool_end" in again, f"what was shown before was not read: {again}")
    # The first reader's own stores died with the run, perhaps before it had read everything.
    expect_same(again[: len(seen)], seen, "what the reader elsewhere has seen")


@check("X2", "an event loop that was blocked for half a lease is reported in the log")
async def blocked_loop(harness: Harness) -> None:
    if sys.platform == "emscripten":
        raise NotApplicable("the clock of a Worker stands still while it computes")
    stores = await harness.open_stores()
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    @tool
    async def block(ctx: ToolContext) -> str:
        """Block the event loop, which tools must not do."""
        await asyncio.sleep(0.01)  # the lease watcher is asleep by now
        time.sleep(0.25)  # noqa: ASYNC251  # the fault that this is about
        await asyncio.sleep(0.05)
        return "ok"

    listener, logger = Listener(), logging.getLogger("helix_agents")
    logger.addHandler(listener)
    try:
        executor = make_executor(stores, ScriptedLLM([[Call("block")], "Done."]), lease_seconds=0.4, poll_seconds=0.005)
        await (await executor.execute(simple_agent(block), "Go", session_id="s")).result()
    finally:
        logger.removeHandler(listener)
    expect(any(("blocked" in line and "'s'" in line) or "session s" in line for line in told), f"the log says {told}")
