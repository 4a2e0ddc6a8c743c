"""S14: data of one session, and of one application, is never returned for another."""

from __future__ import annotations

from ...errors import CheckpointNotFound, RunNotFound, SessionNotFound
from ..expect import expect_same, raises
from ..harness import STATE_STORE, Harness
from ..registry import NotApplicable
from ..tools.dump import dump, dump_session
from ..tools.operations import OPERATIONS, prepare
from ..tools.sample import user

check = STATE_STORE.check

ALIKE = (
    "a",
    "A",
    "a ",
    " a",
    "a:",
    "a:b",
    "a/b",
    "a%",
    "a_",
    "a*",
    "ab",
    "\xe1",
    "a\u0301",
    "a.b",
    "-",
    "0",
    "a\\",
    "a'",
)
"""Ids that a careless key scheme, collation or pattern would confuse."""


@check("S14", "sessions with similar ids do not share anything")
async def similar_ids_stay_apart(harness: Harness) -> None:
    store = await harness.open()
    for session_id in ALIKE:
        await store.create_session(session_id, agent_type="agent", custom_state={"mine": [session_id]})
        await store.append_messages(session_id, [user(session_id)])
        await store.set_interrupt_flag(session_id, session_id)
    for session_id in ALIKE:
        state = await store.load_state(session_id)
        assert state is not None
        expect_same((state.session_id, state.custom_state), (session_id, {"mine": [session_id]}), "a session")
        expect_same((await store.get_messages(session_id)).items, [user(session_id)], "its messages")
        flag = await store.check_interrupt_flag(session_id)
        expect_same(flag.reason if flag else None, session_id, "its flag")
    await store.delete_session("a")
    left = {it.session_id for it in (await store.list_sessions(limit=200)).items}
    expect_same(sorted(left), sorted(set(ALIKE) - {"a"}), "sessions left after one was deleted")


@check("S14", "no write to one session changes another")
async def writes_stay_in_their_session(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "bystander")
    before = await dump_session(store, "bystander")
    for name, operation in OPERATIONS.items():
        session_id = f"session-{name}"
        if operation.prepare is not None:
            await operation.prepare(store, session_id)
        await operation.run(store, session_id)
        expect_same(await dump_session(store, "bystander"), before, f"a bystander of {name}")


@check("S14", "another application on the same backend sees none of the data and does not affect it")
async def neighbours_stay_apart(harness: Harness) -> None:
    store = await harness.open()
    neighbour = await harness.open_neighbour()
    if neighbour is None:
        raise NotApplicable("no second application can share this backend")
    await prepare(store, "a")
    newest = await store.get_latest_checkpoint("a")
    assert newest is not None
    before = await dump(store)
    expect_same(await dump(neighbour), {}, "what the other application sees")
    with raises(SessionNotFound, "a write of the other application"):
        await neighbour.append_messages("a", [user("x")])
    with raises(RunNotFound, "a change of a run by the other application"):
        await neighbour.update_run_status("run-of-a", "completed")
    await prepare(neighbour, "a")
    with raises(CheckpointNotFound, "a restore by the other application"):
        await neighbour.restore_checkpoint("a", newest.checkpoint_id)
    await neighbour.delete_session("a")
    expect_same(await dump(store), before, "all data of the first application")
