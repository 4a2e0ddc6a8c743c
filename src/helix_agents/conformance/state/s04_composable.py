"""S4: writes that compose lose nothing, from however many tasks and processes they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...stores.state.contract import StateStore
from ..expect import expect_same
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew
from ..tools.jobs import JOBS
from ..tools.sample import ref, user, writes

check = STATE_STORE.check

Team = Callable[[str, list[dict[str, Any]]], Awaitable[list[Any]]]
"""Runs one job with each of the parameters concurrently and returns the results."""

TIMES = 12


def _params(workers: int) -> list[dict[str, Any]]:
    return [{"session_id": "a", "worker": f"w{number}", "times": TIMES} for number in range(workers)]


async def _tasks(harness: Harness) -> Team:
    stores = [await harness.open() for _ in range(4)]

    async def team(job: str, params: list[dict[str, Any]]) -> list[Any]:
        return await asyncio.gather(
            *(JOBS[job](stores[number % len(stores)], each) for number, each in enumerate(params))
        )

    return team


async def _appends(store: StateStore, team: Team, workers: int) -> None:
    await store.create_session("a", agent_type="agent")
    answers = await team("append", _params(workers))
    messages = [each["content"] for each in (await store.get_messages("a", limit=None)).items]
    expect_same(len(messages), workers * TIMES * 3, "messages")
    expect_same(await store.get_message_count("a"), len(messages), "the message count")
    for number, counts in enumerate(answers):
        for turn, count in enumerate(counts):
            expected = [f"w{number}.{turn}.{part}" for part in range(3)]
            expect_same(messages[count - 3 : count], expected, f"the three messages before the returned count {count}")


async def _merges(store: StateStore, team: Team, workers: int) -> None:
    custom = {"items": [], "count": 0, "shared": {}, "deep": {"items": [], "count": 0}}
    await store.create_session("a", agent_type="agent", custom_state=custom)
    answers = await team("merge", _params(workers))
    expect_same(answers, [[] for _ in answers], "warnings")
    state = await store.load_state("a")
    assert state is not None
    names = {f"w{number}.{turn}": turn for number in range(workers) for turn in range(TIMES)}
    merged = state.custom_state
    expect_same(sorted(merged["items"]), sorted(names), "items appended to a list")
    expect_same(sorted(merged["deep"]["items"]), sorted(names), "items appended to a nested list")
    expect_same((merged["count"], merged["deep"]["count"]), (len(names), 2 * len(names)), "counters")
    expect_same(merged["shared"], names, "keys set in a shared object")
    own = {key: value for key, value in merged.items() if key in names}
    expect_same(own, names, "keys set at the top level")
    for number in range(workers):
        mine = [name for name in merged["items"] if name.startswith(f"w{number}.")]
        expect_same(mine, [f"w{number}.{turn}" for turn in range(TIMES)], "the order of one worker's items")


async def _increments(store: StateStore, team: Team, workers: int) -> None:
    await store.create_session("a", agent_type="agent")
    answers = await team("increment", _params(workers))
    seen = sorted(count for counts in answers for count in counts)
    expect_same(seen, list(range(1, workers * TIMES + 1)), "the counts that were returned")
    state = await store.load_state("a")
    assert state is not None
    expect_same((state.step_count, state.resume_count), (workers * TIMES,) * 2, "step and resume count")


async def _stages(store: StateStore, team: Team, workers: int) -> None:
    await store.create_session("a", agent_type="agent", custom_state={"items": []})
    await team("stage", _params(workers))
    names = sorted(f"w{number}.{turn}" for number in range(workers) for turn in range(TIMES))
    staged = await store.list_staged("a", "step-1")
    expect_same(sorted(row.tool_call_id for row in staged), names, "staged calls")
    expect_same(sorted(it.sub_session_id for it in await store.list_sub_session_refs("a")), names, "refs")
    await store.promote_staging("a", "step-1")
    state = await store.load_state("a")
    assert state is not None
    order = [int(name.split(".")[1]) for name in state.custom_state["items"]]
    expect_same(order, sorted(order), "the indexes of the items, promoted in the order of the calls")


async def _runs(store: StateStore, team: Team, workers: int) -> None:
    await store.create_session("a", agent_type="agent")
    answers = await team("run", _params(workers))
    turns = sorted(turn for each in answers for turn in each)
    expect_same(turns, list(range(1, workers * TIMES + 1)), "the turns of the runs")


@check("S4", "tasks that append concurrently lose nothing, and messages of one call stay together", kind="tasks")
async def tasks_append(harness: Harness) -> None:
    await _appends(await harness.open(), await _tasks(harness), 8)


@check("S4", "tasks that merge concurrently lose nothing", kind="tasks")
async def tasks_merge(harness: Harness) -> None:
    await _merges(await harness.open(), await _tasks(harness), 8)


@check("S4", "tasks that increment concurrently lose nothing", kind="tasks")
async def tasks_increment(harness: Harness) -> None:
    await _increments(await harness.open(), await _tasks(harness), 8)


@check("S4", "tasks that stage calls and record refs concurrently lose nothing", kind="tasks")
async def tasks_stage(harness: Harness) -> None:
    await _stages(await harness.open(), await _tasks(harness), 8)


@check("S4", "tasks that start runs concurrently get different turns", kind="tasks")
async def tasks_begin_runs(harness: Harness) -> None:
    await _runs(await harness.open(), await _tasks(harness), 4)


@check(
    "S4", "processes that append concurrently lose nothing, and messages of one call stay together", kind="processes"
)
async def processes_append(harness: Harness) -> None:
    async with crew(harness) as workers:
        await _appends(await harness.open(), workers.run, len(workers))


@check("S4", "processes that merge concurrently lose nothing", kind="processes")
async def processes_merge(harness: Harness) -> None:
    async with crew(harness) as workers:
        await _merges(await harness.open(), workers.run, len(workers))


@check("S4", "processes that increment concurrently lose nothing", kind="processes")
async def processes_increment(harness: Harness) -> None:
    async with crew(harness) as workers:
        await _increments(await harness.open(), workers.run, len(workers))


@check("S4", "processes that stage calls and record refs concurrently lose nothing", kind="processes")
async def processes_stage(harness: Harness) -> None:
    async with crew(harness) as workers:
        await _stages(await harness.open(), workers.run, len(workers))


@check("S4", "processes that start runs concurrently get different turns", kind="processes")
async def processes_begin_runs(harness: Harness) -> None:
    async with crew(harness) as workers:
        await _runs(await harness.open(), workers.run, len(workers))


@check("S4", "appending nothing returns the count and changes nothing")
async def empty_writes_change_nothing(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    await store.append_messages("a", [user("one")])
    expect_same(await store.append_messages("a", []), 1, "the count")
    expect_same(await store.merge_custom_state("a", writes()), [], "warnings of an empty list of writes")
    await store.add_sub_session_refs("a", [])
    expect_same(await store.list_sub_session_refs("a"), [], "refs")


@check("S4", "refs are listed oldest first, replaced by id and changed by field")
async def refs_are_replaced_and_changed(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    full = ref("z", mode="persistent", name="zed", remote={"url": ["x"]}, started_at=1, completed_at=2, status="s")
    await store.add_sub_session_refs("a", [full, ref("m")])
    await store.add_sub_session_refs("a", [ref("b")])
    expect_same(await store.list_sub_session_refs("a"), [full, ref("m"), ref("b")], "refs")
    await store.add_sub_session_refs("a", [ref("m", status="other")])
    changed = await store.update_sub_session_ref("a", "b", status="completed", completed_at=9, remote=None)
    expect_same(changed, ref("b", status="completed", completed_at=9), "the changed ref")
    again = await harness.reopen()
    found = {it.sub_session_id: it for it in await again.list_sub_session_refs("a")}
    expect_same(found, {"z": full, "m": ref("m", status="other"), "b": changed}, "refs after reopening")
