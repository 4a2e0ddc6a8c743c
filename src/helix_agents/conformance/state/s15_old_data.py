"""S15: a database is migrated once, by the first process, and never if it is newer than the code."""

from __future__ import annotations

from ...errors import SchemaTooNew
from ..expect import expect_same, raises
from ..harness import STATE_STORE, Harness
from ..registry import NotApplicable
from ..tools.crew import crew
from ..tools.dump import dump
from ..tools.operations import prepare

check = STATE_STORE.check


@check("S15", "processes that open a new database concurrently all succeed", kind="processes")
async def many_open_at_once(harness: Harness) -> None:
    spec = harness.fresh_child_spec()
    if spec is None:
        raise NotApplicable("there is no schema to migrate, or no second process to do it")
    async with crew(harness, harness.options.openers, spec=spec) as workers:
        answers = await workers.run("create", [{"session_id": f"a{n}"} for n in range(len(workers))])
        expect_same(answers, ["created"] * len(workers), "the results of the processes")


@check("S15", "a database that is newer than the code is rejected and left unchanged")
async def newer_schema_is_refused(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    try:
        undo = await harness.pretend_newer_schema()
    except NotImplementedError:
        raise NotApplicable("there is no schema") from None
    with raises(SchemaTooNew, "opening a newer database"):
        opened = await harness.open()
        await opened.load_state("a")
    await undo()
    expect_same(await dump(await harness.reopen()), before, "all data")


@check("S15", "all data is unchanged after reopening the store")
async def everything_survives_reopening(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    await prepare(store, "b")
    before = await dump(store)
    expect_same(await dump(await harness.reopen()), before, "all data after reopening")
