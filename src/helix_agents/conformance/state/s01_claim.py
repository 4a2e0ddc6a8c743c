"""S1: a session id is claimed once."""

from __future__ import annotations

import asyncio

from ...errors import SessionExists
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew
from ..tools.dump import dump

check = STATE_STORE.check


@check("S1", "a new session is active, at version 1, with the values given")
async def new_session_is_as_asked_for(harness: Harness) -> None:
    store = await harness.open()
    made = await store.create_session(
        "a",
        agent_type="agent",
        custom_state={"n": 1},
        stream_id="stream",
        parent_session_id="p",
        root_session_id="r",
        user_id="u",
        tags=["x", "y"],
        metadata={"k": "v"},
        expires_at=5,
    )
    got = (made.status, made.version, made.agent_type, made.custom_state, made.stream_id, made.parent_session_id)
    expect_same(got, ("active", 1, "agent", {"n": 1}, "stream", "p"), "the returned session")
    rest = (made.root_session_id, made.user_id, made.tags, made.metadata, made.expires_at, made.step_count)
    expect_same(rest, ("r", "u", ("x", "y"), {"k": "v"}, 5, 0), "the returned session")
    expect(made.created_at > 0 and made.updated_at >= made.created_at, "the session has no timestamps")
    expect_same(await store.load_state("a"), made, "the session loaded")


@check("S1", "omitted values get their defaults")
async def left_out_has_its_default(harness: Harness) -> None:
    store = await harness.open()
    made = await store.create_session("a", agent_type="agent")
    got = (made.custom_state, made.stream_id, made.parent_session_id, made.user_id, made.tags, made.metadata)
    expect_same(got, ({}, "a", None, None, (), {}), "the returned session")
    expect_same(await store.get_message_count("a"), 0, "messages")
    expect(await store.get_current_run("a") is None, "a new session has a run")
    expect(await store.get_latest_checkpoint("a") is None, "a new session has a checkpoint")


@check("S1", "an id that is taken is rejected, and its session stays unchanged")
async def taken_id_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="first", custom_state={"n": 1})
    before = await dump(store)
    other = await harness.open()
    with raises(SessionExists, "create_session with a taken id") as caught:
        await other.create_session("a", agent_type="second", custom_state={"n": 2})
    expect_same(getattr(caught.error, "session_id", None), "a", "the id that the error names")
    expect_same(await dump(store), before, "all data")


@check("S1", "when many tasks create the same session, exactly one succeeds", kind="tasks")
async def one_task_wins(harness: Harness) -> None:
    stores = [await harness.open() for _ in range(4)]
    tasks = harness.options.tasks

    async def claim(number: int) -> bool:
        try:
            await stores[number % len(stores)].create_session("a", agent_type=f"agent-{number}")
        except SessionExists:
            return False
        return True

    won = await asyncio.gather(*(claim(number) for number in range(tasks)))
    expect_same(sum(won), 1, "creators that succeeded")
    state = await stores[0].load_state("a")
    expect_same(state.agent_type if state else None, f"agent-{won.index(True)}", "whose session it is")


@check("S1", "when many processes create the same session, exactly one succeeds", kind="processes")
async def one_process_wins(harness: Harness) -> None:
    async with crew(harness) as workers:
        for round_number in range(15):
            answers = await workers.run("create", [{"session_id": f"a{round_number}"}] * len(workers))
            expect_same(sorted(answers), ["created"] + ["exists"] * (len(workers) - 1), "the results of the creators")
