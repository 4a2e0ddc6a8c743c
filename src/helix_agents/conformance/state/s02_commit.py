"""S2: a step commits as a whole or not at all."""

from __future__ import annotations

import asyncio

import msgspec

from ...errors import HelixError, VersionConflict
from ...stores.state.contract import StateStore
from ...types import CheckpointMeta, RunRecord
from ..expect import expect, expect_same, raises
from ..harness import STATE_STORE, Harness
from ..tools.crew import crew, hear, spec_of, start_child, stop_child, tell
from ..tools.dump import dump
from ..tools.sample import add, meta, plain_state, push, put, user, writes

check = STATE_STORE.check

MAX_LOOKS = 100_000


@check("S2", "a commit is visible as a whole")
async def commit_is_visible_as_a_whole(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1], "n": 1})
    await store.append_messages("a", [user("one")])
    await store.stage_changes("a", "step-1", writes(push("items", items=[2]), add("n")), tool_call_id="call-1")
    await store.stage_changes("a", "step-2", writes(put("other", value=1)), tool_call_id="call-1")
    done = await store.save_state_and_promote_staging(
        "a", plain_state("a", status="paused", output="out"), [user("two"), user("three")], meta(4, "step-1", 17)
    )
    expect_same((done.new_version, done.message_count, done.warnings), (2, 3, []), "the returned result")
    other = await harness.open()
    state = await other.load_state("a")
    assert state is not None
    got = (state.status, state.output, state.step_count, state.version, state.custom_state)
    expect_same(got, ("paused", "out", 4, 2, {"items": [1, 2], "n": 2}), "the session")
    messages = await other.get_messages("a")
    expect_same(messages.items, [user("one"), user("two"), user("three")], "the messages")
    expect_same(await other.list_staged("a", "step-1"), [], "staged writes of the step")
    expect_same(len(await other.list_staged("a", "step-2")), 1, "staged writes of another step")
    made = await other.get_checkpoint("a", done.checkpoint_id)
    assert made is not None
    got_made = (made.step_id, made.step_count, made.stream_sequence, made.message_count, made.status, made.version)
    expect_same(got_made, ("step-1", 4, 17, 3, "paused", 2), "the checkpoint")
    expect_same(made.state.custom_state, state.custom_state, "custom state of the checkpoint")


@check("S2", "given custom state replaces the stored one, and staged writes apply on top")
async def given_custom_state_replaces_first(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1], "old": True})
    await store.stage_changes("a", "step-1", writes(push("items", items=["staged"])), tool_call_id="call-1")
    state = plain_state("a", custom_state={"items": ["given"], "new": 1})
    await store.save_state_and_promote_staging("a", state, [], meta())
    loaded = await store.load_state("a")
    assert loaded is not None
    expect_same(loaded.custom_state, {"items": ["given", "staged"], "new": 1}, "custom state")


@check("S2", "custom state None leaves the stored state alone, even if it changed after it was loaded")
async def none_means_as_stored(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"kept": [1]})
    await store.merge_custom_state("a", writes(push("kept", items=[2])))
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(1))
    await store.merge_custom_state("a", writes(push("kept", items=[3])))
    await store.save_state("a", plain_state("a"))
    loaded = await store.load_state("a")
    assert loaded is not None
    expect_same(loaded.custom_state, {"kept": [1, 2, 3]}, "custom state")


@check("S2", "an empty object given as custom state empties it")
async def empty_custom_state_empties(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"gone": [1], "too": {"x": 1}})
    await store.save_state_and_promote_staging("a", plain_state("a", custom_state={}), [], meta())
    loaded = await store.load_state("a")
    assert loaded is not None
    expect_same(loaded.custom_state, {}, "custom state")


@check("S2", "a commit at the wrong version leaves nothing behind")
async def conflict_leaves_nothing(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [1]})
    await store.stage_changes("a", "step-1", writes(push("items", items=[2])), tool_call_id="call-1")
    await store.update_status("a", "paused")
    before = await dump(store)
    with raises(VersionConflict, "a commit at the wrong version"):
        await store.save_state_and_promote_staging(
            "a", plain_state("a", custom_state={"x": 1}), [user("no")], meta(), expected_version=1
        )
    expect_same(await dump(store), before, "all data")


@check("S2", "a checkpoint has the message count of its commit")
async def message_count_is_filled_in_the_write(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await store.create_session("a", agent_type="agent")
    state = await store.load_state("a")
    assert state is not None
    await other.append_messages("a", [user("from elsewhere"), user("and again")])
    done = await store.save_state_and_promote_staging("a", state, [user("mine")], meta())
    made = await store.get_checkpoint("a", done.checkpoint_id)
    expect_same((done.message_count, made.message_count if made else None), (3, 3), "message counts")


@check("S2", "commits that race with appends count their messages correctly", kind="tasks")
async def counts_hold_among_tasks(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await store.create_session("a", agent_type="agent")

    async def append(number: int) -> None:
        await other.append_messages("a", [user(f"append {number}")] * 2)

    async def commit(number: int) -> tuple[str, int]:
        done = await store.save_state_and_promote_staging(
            "a", plain_state("a"), [user(f"commit {number}")], meta(number + 1, "step-2")
        )
        return f"commit {number}", done.message_count

    jobs = [task for number in range(12) for task in (append(number), commit(number))]
    answers = [each for each in await asyncio.gather(*jobs) if each is not None]
    messages = (await store.get_messages("a", limit=None)).items
    expect_same(len(messages), 36, "messages")
    for text, count in answers:
        expect_same(messages[count - 1]["content"], text, f"the message that a commit with count {count} ended with")
    for made in (await store.list_checkpoints("a")).items:
        place = made.message_count - 1
        expect(
            messages[place]["content"].startswith("commit"),
            f"message {place}, the last of a checkpoint, is not of a commit",
        )


@check("S2", "commits that race with staging promote every staged call exactly once", kind="tasks")
async def staging_races_with_commits(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": []})

    async def stage(number: int) -> None:
        await other.stage_changes(
            "a", "step-1", writes(push("items", items=[number])), tool_call_id=f"call-{number}", index=number
        )

    async def commit(number: int) -> None:
        await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(number + 1, "step-1"))

    await asyncio.gather(*(task for number in range(16) for task in (stage(number), commit(number))))
    await commit(99)
    state = await store.load_state("a")
    assert state is not None
    expect_same(sorted(state.custom_state["items"]), list(range(16)), "promoted items")
    expect_same(await store.list_staged("a", "step-1"), [], "staged writes left over")


async def _seen_whole(store: StateStore, session_id: str) -> int:
    """Read a session to which every commit adds one item, count and step; return how many there are."""
    state = await store.load_state(session_id)
    assert state is not None
    seen = (len(state.custom_state["items"]), state.custom_state["n"], state.step_count, state.version - 1)
    expect_same(seen, (seen[0],) * 4, "items, counter, steps and version of one read")
    newest = await store.get_latest_checkpoint(session_id)
    if newest is not None:
        held = (len(newest.state.custom_state["items"]), newest.state.custom_state["n"], newest.message_count // 20)
        expect_same(held, (newest.step_count,) * 3, "items, counter and messages of the latest checkpoint")
    return seen[0]


@check("S2", "a reader never sees half a commit of other tasks", kind="tasks")
async def readers_see_whole_commits(harness: Harness) -> None:
    store, other = await harness.open(), await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [], "n": 0})

    async def commit_all() -> None:
        for number in range(20):
            ops = writes(push("items", items=[number]), add("n"))
            await store.stage_changes("a", "step-1", ops, tool_call_id="call-1")
            messages = [user(f"{number} {part}") for part in range(20)]
            await store.save_state_and_promote_staging("a", plain_state("a"), messages, meta(number + 1))

    writer = asyncio.create_task(commit_all())
    for _ in range(MAX_LOOKS):
        if writer.done():
            break
        await _seen_whole(other, "a")
        await asyncio.sleep(0)
    await writer
    expect_same(await _seen_whole(other, "a"), 20, "commits")


@check("S2", "a reader never sees half a commit of another process", kind="processes")
async def readers_see_whole_commits_of_processes(harness: Harness) -> None:
    spec = spec_of(harness)
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": [], "n": 0})
    child = await start_child("commits", spec)
    try:
        await tell(child, "a")
        told = 0
        while told < 40:
            told = int(await hear(child)) + 1
            seen = await _seen_whole(store, "a")
            expect(seen >= told, f"{told} commits were acknowledged, {seen} are visible")
    finally:
        await stop_child(child)


@check(
    "S2", "processes that commit, append and stage concurrently neither lose nor duplicate anything", kind="processes"
)
async def counts_hold_among_processes(harness: Harness) -> None:
    store = await harness.open()
    await store.create_session("a", agent_type="agent", custom_state={"items": []})
    times = 15
    common = {"session_id": "a", "times": times}
    async with crew(harness) as workers:
        answers = await workers.run_mixed(
            [
                ("commit_many", {**common, "worker": "c1", "step_id": "step-1"}),
                ("commit_many", {**common, "worker": "c2", "step_id": "step-1"}),
                ("append", {**common, "worker": "w"}),
                ("stage", {**common, "worker": "s"}),
            ]
        )
    await store.save_state_and_promote_staging("a", plain_state("a"), [], meta(99, "step-1"))
    messages = [each["content"] for each in (await store.get_messages("a", limit=None)).items]
    expect_same(len(messages), 5 * times, "messages")
    for worker, counts in (("c1", answers[0]), ("c2", answers[1])):
        for number, count in enumerate(counts):
            expect_same(messages[count - 1], f"{worker}.{number}.0", f"the message at the count {count} of a commit")
    state = await store.load_state("a")
    assert state is not None
    expect_same(sorted(state.custom_state["items"]), sorted(f"s.{number}" for number in range(times)), "items")
    expect_same(state.version, 2 + 2 * times, "the version after all commits")


@check("S2", "one write can create a session with messages, checkpoint and run, or commit and start a run")
async def begins_as_a_whole(harness: Harness) -> None:
    store = await harness.open()
    wanted = RunRecord("run-1", "a", 0, start_sequence=4, metadata={"m": [1.0]}, lease_until=0)
    meta_of_turn = CheckpointMeta("run-1", 0, 3, kind="turn")
    said = [user("hello"), user("there")]
    made = await store.create_session(
        "a", agent_type="agent", custom_state={"n": 1}, messages=said, checkpoint=meta_of_turn, run=wanted
    )
    expect_same((made.version, made.status, made.step_count), (1, "active", 0), "the session")
    again = await harness.reopen()
    expect_same((await again.get_messages("a")).items, said, "the messages")
    (run,) = await again.list_runs("a")
    got = (run.run_id, run.turn, run.start_sequence, run.metadata, run.lease_until, run.status)
    expect_same(got, ("run-1", 1, 4, {"m": [1.0]}, 0, "running"), "the run")
    expect(run.started_at > 0, "the run has no start time")
    latest = await again.get_latest_checkpoint("a")
    assert latest is not None
    found = (latest.step_id, latest.kind, latest.message_count, latest.version, latest.state.custom_state)
    expect_same(found, ("run-1", "turn", 2, 1, {"n": 1}), "the checkpoint")
    before = await dump(again)
    for session_id in ("a", "b"):
        with raises(HelixError, "a new session with a run whose id is taken"):
            await again.create_session(session_id, agent_type="agent", messages=said, run=wanted)
    with raises(HelixError, "a commit with a run whose id is taken"):
        await again.save_state_and_promote_staging("a", made, said, CheckpointMeta("s", 1, 0), run=wanted)
    with raises(VersionConflict, "a commit with a run at the wrong version"):
        second = msgspec.structs.replace(wanted, run_id="run-2")
        await again.save_state_and_promote_staging(
            "a", made, said, CheckpointMeta("s", 1, 0), expected_version=7, run=second
        )
    expect_same(await dump(again), before, "all data")
    await again.save_state_and_promote_staging(
        "a", made, said, CheckpointMeta("s", 1, 0), expected_version=1, run=second
    )
    runs = [(each.run_id, each.turn) for each in await again.list_runs("a")]
    expect_same((runs, await again.get_message_count("a")), ([("run-1", 1), ("run-2", 2)], 4), "the runs, the messages")
    third = msgspec.structs.replace(wanted, run_id="run-3")
    with raises(VersionConflict, "a save with a run at the wrong version"):
        await again.save_state("a", made, expected_version=7, run=third)
    await again.save_state("a", made, expected_version=2, run=third)
    begun = await again.get_current_run("a")
    assert begun is not None
    expect_same((begun.run_id, begun.turn, begun.status), ("run-3", 3, "running"), "the run that started with a save")
    changed = await again.update_run_status("run-3", "running", start_sequence=8, metadata={"worker": "w"})
    expect_same((changed.start_sequence, changed.metadata), (8, {"worker": "w"}), "the run after a change")
    expect_same(await again.get_current_run("a"), changed, "the run as stored")
