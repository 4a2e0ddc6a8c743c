"""S17, X1: one keyed regenerate or edit that is sent twice, as by a client that stopped waiting for the reply."""

from __future__ import annotations

import asyncio
from typing import Any

from ...executor import AgentExecutor, RunHandle
from ..expect import expect_same
from ..harness import Harness, StoreSet
from .frozen import Freezer, places
from .harness import Clockwork, check
from .x9_branches import KEY, SECOND, branched, executor_on
from .x9_frozen import PATIENCE_SECONDS


async def _request(executor: AgentExecutor, session_id: str, verb: str, if_running: Any) -> RunHandle[Any]:
    if verb == "edit":
        return await executor.edit(session_id, SECOND, "note three", idempotency_key=KEY, if_running=if_running)
    return await executor.regenerate(session_id, idempotency_key=KEY, if_running=if_running)


@check("S17", "a keyed regenerate or edit that is sent again happens once, wherever the first one stalls", kind="tasks")
async def one_key_sent_twice(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for verb, makes in (("regenerate", 1), ("edit", 2)):
        for if_running in ("reject", "interrupt"):
            name = f"{verb}-{if_running}"
            await branched(stores, clock, name)
            calls = await _calls_of(stores, clock, name, verb, if_running)
            for number, after in places(calls, seed=harness.options.seed, most=harness.options.steps // 10):
                session_id, held = f"{name}-{number}-{after}", Freezer(number, after=after)
                await branched(stores, clock, session_id)
                before = len(await stores.state.list_branches(session_id))
                async with asyncio.timeout(PATIENCE_SECONDS):
                    runs = await _sent_twice(stores, clock, held, session_id, verb, if_running)
                what = f"{session_id}, held up at {held.place}"
                expect_same(runs[0], runs[1], f"the runs of both requests, {what}")
                made = len(await stores.state.list_branches(session_id)) - before
                expect_same(made, makes, f"new branches, {what}")
                open_runs = [run for run in await stores.state.list_runs(session_id) if run.status == "running"]
                expect_same(open_runs, [], f"open runs, {what}")


async def _calls_of(stores: StoreSet, clock: Clockwork, session_id: str, verb: str, if_running: str) -> int:
    """Return how many calls a request makes before it returns."""
    counter = Freezer()
    async with executor_on(counter.wrap(stores), clock) as executor:
        handle = await _request(executor, session_id, verb, if_running)
        calls = counter.calls
        await handle.result()
    return calls


async def _sent_twice(
    stores: StoreSet, clock: Clockwork, held: Freezer, session_id: str, verb: str, if_running: str
) -> list[str]:
    """Return the runs of two requests. The second is sent while the first is stalled, and ends first if it can."""
    async with executor_on(held.wrap(stores), clock) as slow, executor_on(stores, clock) as fast:
        first = asyncio.create_task(_request(slow, session_id, verb, if_running))
        await held.frozen.wait()
        has_claimed = any(run.idempotency_key == KEY for run in await stores.state.list_runs(session_id))
        second = await _request(fast, session_id, verb, if_running)
        if not has_claimed:
            await second.result()
        held.wake()
        handles = [await first, second]
        for handle in handles:
            await handle.result()
    return [handle.run_id for handle in handles]
