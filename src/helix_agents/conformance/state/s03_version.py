"""S3: which writes raise the version, and what a wrong one does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import VersionConflict
from ...state import StepWrites
from ...stores.state.contract import StateStore
from ...types import SubSessionRef
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew
from ..tools.dump import dump
from ..tools.operations import OPERATIONS, prepare
from ..tools.sample import meta, plain_state, user

check = STATE_STORE.check

MOVES = {
    "save_state",
    "save_state_and_promote_staging",
    "commit_without_expected_version",
    "update_status",
    "compare_and_set_status",
    "restore_checkpoint",
    "branch_session",
    "switch_branch",
}
ENDS = {"create_session", "delete_session"}


@check("S3", "exactly the documented methods raise the version, by one")
async def exactly_these_move_the_version(harness: Harness) -> None:
    store = await harness.open()
    for name in [name for name in OPERATIONS if name not in ENDS]:
        session_id, operation = f"session-{name}", OPERATIONS[name]
        assert operation.prepare is not None
        await operation.prepare(store, session_id)
        before = await store.load_state(session_id)
        await operation.run(store, session_id)
        after = await store.load_state(session_id)
        assert before is not None
        assert after is not None
        expect_same(after.version - before.version, 1 if name in MOVES else 0, f"by how much {name} raised the version")


@check("S3", "reading changes no version")
async def reading_moves_nothing(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    before = await dump(store)
    expect_same(await dump(store), before, "all data after reading all data")


@check("S3", "the returned version is the stored one")
async def answered_version_is_stored(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    steps: list[Callable[[], Awaitable[int]]] = [
        lambda: store.save_state("a", plain_state("a")),
        lambda: store.update_status("a", "paused"),
        lambda: store.save_state("a", plain_state("a"), expected_version=3),
    ]
    for expected, step in enumerate(steps, start=2):
        expect_same(await step(), expected, "the returned version")
        state = await store.load_state("a")
        expect_same(state.version if state else None, expected, "the stored version")


@check("S3", "a version in the saved state is not written")
async def version_of_the_value_is_ignored(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    expect_same(await store.save_state("a", plain_state("a", version=99)), 2, "the new version")


@check("S3", "a conflict names the expected and current version and the status, and writes nothing")
async def conflict_tells_what_is_there(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    await store.update_status("a", "paused")
    newest = await store.get_latest_checkpoint("a")
    assert newest is not None
    before = await dump(store)
    attempts: dict[str, Callable[[int], Awaitable[Any]]] = {
        "save_state": lambda version: store.save_state("a", plain_state("a"), expected_version=version),
        "commit": lambda version: store.save_state_and_promote_staging(
            "a", plain_state("a"), [user("no")], meta(), expected_version=version
        ),
        "restore_checkpoint": lambda version: store.restore_checkpoint(
            "a", newest.checkpoint_id, expected_version=version
        ),
    }
    for name, attempt in attempts.items():
        for wrong in (0, 3, 5, 2**40):
            with raises(VersionConflict, f"{name} at version {wrong}") as caught:
                await attempt(wrong)
            error = caught.error
            assert isinstance(error, VersionConflict)
            got = (error.expected_version, error.current_version, error.current_status)
            expect_same(got, (wrong, 4, "paused"), f"what the conflict of {name} says")
    expect_same(await dump(store), before, "all data")


async def _one_wins(store: StateStore, answers: list[int | None], version: int) -> None:
    won = [answer for answer in answers if answer is not None]
    expect_same(won, [version + 1], "versions returned to the winners")
    messages = (await store.get_messages("a", limit=None)).items
    expect_same(len(messages), version, "messages of committed steps")
    listed = await store.list_checkpoints("a")
    expect_same(listed.total, version, "checkpoints")


@check("S3", "when many tasks commit at one version, exactly one succeeds", kind="tasks")
async def one_task_commits(harness: Harness) -> None:
    stores = [await harness.open() for _ in range(4)]
    await stores[0].create_session("a", agent_type="agent")

    async def commit(number: int) -> int | None:
        try:
            done = await stores[number % 4].save_state_and_promote_staging(
                "a", plain_state("a", output=number), [user(f"{number}")], meta(), expected_version=1
            )
        except VersionConflict:
            return None
        return done.new_version

    answers = await asyncio.gather(*(commit(number) for number in range(harness.options.tasks)))
    await _one_wins(stores[0], answers, 1)
    state = await stores[0].load_state("a")
    winner = next(number for number, answer in enumerate(answers) if answer is not None)
    expect_same(state.output if state else None, winner, "whose commit is stored")


@check("S3", "when many processes commit at one version, exactly one succeeds", kind="processes")
async def one_process_commits(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent")
    async with crew(harness) as workers:
        for version in range(1, 6):
            answers = await workers.run(
                "commit",
                [{"session_id": "a", "worker": f"w{n}", "expected_version": version} for n in range(len(workers))],
            )
            await _one_wins(store, answers, version)
    expect(len(answers) > 1, "there were no processes to race with")


@check(
    "S3",
    "runs, staged calls, refs and discards check an expected version and do not raise it",
)
async def guarded_without_moving(harness: Harness) -> None:
    store = await harness.open()
    await prepare(store, "a")
    session = await store.load_state("a")
    assert session is not None
    version = session.version
    await store.stage_changes("a", "step-g", StepWrites(), tool_call_id="c1", result="kept", expected_version=version)
    await store.create_run("a", "run-guarded", expected_version=version)
    before = await dump(store)
    late: dict[str, Callable[[], Awaitable[object]]] = {
        "create_run": lambda: store.create_run("a", "run-late", expected_version=version - 1),
        "stage_changes": lambda: store.stage_changes(
            "a", "step-g", StepWrites(), tool_call_id="c2", expected_version=version - 1
        ),
        "add_sub_session_refs": lambda: store.add_sub_session_refs(
            "a", [SubSessionRef("late", "agent", "call")], expected_version=version - 1
        ),
        "discard_staging": lambda: store.discard_staging("a", "step-g", expected_version=version - 1),
        "discard_staging of all": lambda: store.discard_staging("a", expected_version=version - 1),
    }
    for name, write in late.items():
        with raises(VersionConflict, f"{name} at an old version") as caught:
            await write()
        assert isinstance(caught.error, VersionConflict)
        expect_same(caught.error.current_version, version, f"{name}: the version that the error names")
        expect_same(await dump(store), before, f"all data after a rejected {name}")
    staged = await store.list_staged("a", "step-g")
    expect_same([row.tool_call_id for row in staged], ["c1"], "what is staged")
    expect_same(await store.discard_staging("a", "step-g", expected_version=version), 1, "how many were discarded")
