"""X2: leases. A live run keeps its session, however long it works; one that stalled for long claims it again."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import AlreadyRunning, ModelError, RunLost
from ...llm.scripted import Call, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Clockwork, Parts, check, executing, simple_agent

LEASE_SECONDS = 3600.0  # no check waits that long: leases expire only by the check's own clock
PATIENCE_SECONDS = 30


async def _lease_until(stores: StoreSet) -> int:
    run = await stores.state.get_current_run("s")
    return 0 if run is None else run.lease_until or 0


@check("X2", "a run that works longer than its lease renews the lease, and no other run gets its session")
async def leases_are_renewed(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    clock, started, done = Clockwork(), asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work for a long time."""
        started.set()
        await done.wait()
        return "worked"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], "Done."])
    options: dict[str, Any] = {"clock": clock, "lease_seconds": LEASE_SECONDS, "poll_seconds": 0.005}
    async with executing(stores, llm, **options) as executor, executing(other, llm, **options) as elsewhere:
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        for _ in range(5):
            clock.pass_seconds(LEASE_SECONDS / 2)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await _lease_until(stores) < clock() + LEASE_SECONDS * 1000 * 2 / 3:  # noqa: ASYNC110  # a lease has no bell
                    await asyncio.sleep(0.005)
            expect(not (await elsewhere.can_resume("s")).can_resume, "a live run can be resumed")
            with raises(AlreadyRunning, "resuming a live run"):
                await elsewhere.resume(agent, "s")
        done.set()
        result = await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    expect_same(len(await stores.state.list_runs("s")), 1, "the number of runs")


class _Counting:
    """A state store that counts how often a session is saved."""

    def __init__(self, inner: Any) -> None:
        self.saves = 0
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "save_state":
            self.saves += 1
        return found


@check("X2", "a run that stalled past its lease without being replaced claims its session again and continues")
async def a_lapsed_lease_is_taken_anew(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock, counting = Clockwork(), _Counting(stores.state)
    saves: list[int] = []

    @tool
    async def sleep(ctx: ToolContext) -> str:
        """Stall for longer than the lease, like a laptop that was closed."""
        clock.pass_seconds(LEASE_SECONDS + 1)
        return "slept"

    @tool
    async def look() -> str:
        """Check whether the lease is valid again."""
        saves.append(counting.saves)
        return "alive" if await _lease_until(stores) > clock() else "dead"

    agent, llm = simple_agent(sleep, look), ScriptedLLM([[Call("sleep")], [Call("look")], [Call("look")], "Done."])
    state: Any = counting
    # The lease watcher does not get to run.
    options: dict[str, Any] = {"clock": clock, "lease_seconds": LEASE_SECONDS, "poll_seconds": 10 * LEASE_SECONDS}
    async with executing(Parts(state, stores.streams, stores.usage), llm, **options) as executor:
        result = await (await executor.execute(agent, "Go", session_id="s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")
    told = [each["content"] for each in (await stores.state.get_messages("s")).items if each["role"] == "tool"]
    expect_same(told, ["slept", "alive", "alive"], "what the tools saw of the lease")
    # Perhaps by both the step and its chunks concurrently, but by neither once the lease is valid again.
    expect(saves[0] in (1, 2) and saves[1] == saves[0], f"how often the session was claimed until then: {saves}")


@check("X2", "a replaced run stops, with its tools, when it tries to renew its lease")
async def replaced_runs_stop(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    clock, ahead, started = Clockwork(), Clockwork(), asyncio.Event()
    fate: list[str] = []
    ahead.pass_seconds(2 * LEASE_SECONDS)

    @tool
    async def work() -> str:
        """In the first run, work without end."""
        if started.is_set():
            return "worked"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            fate.append("stopped")
        return "never"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], "Done."])
    options: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "poll_seconds": 0.005}
    async with (
        executing(stores, llm, clock=clock, **options) as executor,
        executing(other, llm, clock=ahead, **options) as elsewhere,
    ):
        handle = await executor.execute(agent, "Go", session_id="s")
        await started.wait()
        result = await (await elsewhere.resume(agent, "s")).result()
        expect_same([result.status, result.output], ["completed", "Done."], "the result of the other")
        clock.pass_seconds(LEASE_SECONDS / 2)
        with raises(RunLost, "the result of a run that was replaced"):
            await asyncio.wait_for(handle.result(), PATIENCE_SECONDS)
        expect_same(fate, ["stopped"], "what became of the tool")
    expect_same([run.status for run in await stores.state.list_runs("s")], ["interrupted", "completed"], "the runs")


@check("X2", "a run whose executor is closed right after it started is released immediately")
async def closed_at_once(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent, llm = simple_agent(), ScriptedLLM(["Done."])
    async with executing(stores, llm, lease_seconds=LEASE_SECONDS) as executor:
        await executor.execute(agent, "Go", session_id="s")
    async with executing(await harness.open_stores(), llm, lease_seconds=LEASE_SECONDS) as other:
        result = await (await other.resume(agent, "s")).result()
    expect_same([result.status, result.output], ["completed", "Done."], "the result")


class _RenewedBehind:
    """A state store that renews the lease right before the write that ends or releases the run, like a renewal
    whose reply was lost."""

    def __init__(self, inner: Any) -> None:
        self.renewed: list[str] = []
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("save_state", "save_state_and_promote_staging"):
            return found

        async def write(session_id: str, *args: Any, **options: Any) -> Any:
            change = options.get("change_run")
            if change is not None and session_id not in self.renewed:
                self.renewed.append(session_id)
                until = change.seen.lease_until + 1000
                await self._inner.update_run_status(change.seen.run_id, "running", lease_until=until)
            return await found(session_id, *args, **options)

        return write


@check("X2", "a run still ends or asks normally if the reply to a lease renewal is lost", kind="faults")
async def a_renewal_without_reply(harness: Harness) -> None:
    stores = await harness.open_stores()
    behind: Any = _RenewedBehind(stores.state)
    behind.carries = getattr(stores.state, "carries", None)

    @tool(execute="client")
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    async with executing(Parts(behind, stores.streams, stores.usage), _by_session(), poll_seconds=60) as executor:
        for session_id, status in ENDS.items():
            async with asyncio.timeout(PATIENCE_SECONDS):
                result = await (await executor.execute(simple_agent(ask), session_id, session_id=session_id)).result()
            expect_same(result.status, status, f"how {session_id} ends")
            runs = await stores.state.list_runs(session_id)
            expect_same([run.status for run in runs], [status], f"the runs of {session_id}")


ENDS = {"complete": "completed", "suspend": "suspended_client_tool", "fail": "failed"}
"""How a run ends, by the message that its model gets."""


def _by_session() -> ScriptedLLM:
    replies: dict[str, Any] = {
        "complete": "Done.",
        "suspend": [Call("ask", {"question": "?"})],
        "fail": ModelError("no"),
    }
    return ScriptedLLM(lambda request: replies[request.messages[-1]["content"]])
