"""Every public write as a small scenario: how to prepare a session and what to do with it.

The fault checks run each of them with a fault at each verb and compare what is left with before and after.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...stores.state.contract import StateStore
from ...types import BranchPoint, Checkpoint, CheckpointMeta, Committed
from .sample import add, full_state, meta, plain_state, push, put, ref, user, writes

Act = Callable[[StateStore, str], Awaitable[Any]]


async def prepare(store: StateStore, session_id: str) -> None:
    """Create a session with every kind of data: two commits, staged calls, a run, a ref, a flag."""
    await store.create_session(session_id, agent_type="agent", custom_state={"items": [1], "n": 1, "deep": {"a": 1}})
    await store.create_run(session_id, f"run-of-{session_id}", metadata={"m": 1})
    await store.append_messages(session_id, [user("one"), user("two")])
    for step in (1, 2):
        await store.stage_changes(
            session_id, "step-3", writes(push("items", items=[step]), add("n")), tool_call_id=f"call-{step}"
        )
        await store.save_state_and_promote_staging(
            session_id, plain_state(session_id), [user(f"step {step}")], meta(step, "step-3", step * 10)
        )
    await store.merge_custom_state(session_id, writes(put("since", value="the checkpoint")))
    for place in (1, 2):
        await store.stage_changes(
            session_id,
            "step-1",
            writes(push("items", items=[{"staged": place}]), add("n", by=place)),
            tool_call_id=f"call-{place}",
            index=place,
            result={"place": place},
        )
    await store.stage_changes(session_id, "step-2", writes(put("other", value=True)), tool_call_id="call-9")
    await store.add_sub_session_refs(session_id, [ref("sub-1"), ref("sub-2")])
    await store.set_interrupt_flag(session_id, "please stop", run_id="run-x")


async def commit(store: StateStore, session_id: str) -> Any:
    """Make the commit of the operation table, also used for S12."""
    return await store.save_state_and_promote_staging(
        session_id, full_state(session_id), [user("three"), user("four")], meta(3, "step-1", 99), expected_version=3
    )


async def _restore(store: StateStore, session_id: str) -> Any:
    oldest = (await store.list_checkpoints(session_id)).items[-1]
    return await store.restore_checkpoint(session_id, oldest.checkpoint_id)


def branch_point(checkpoints: Sequence[Checkpoint], message_count: int, branch_id: str = "branch-new") -> BranchPoint:
    """Return the branch point after this many messages; `checkpoints` are newest first, as listed."""
    fitting = [it.checkpoint_id for it in checkpoints if it.message_count >= message_count]
    return BranchPoint(branch_id, fitting[-1], message_count, f"message {message_count}")


async def branch(store: StateStore, session_id: str, message_count: int = 2, **options: Any) -> Committed:
    """Branch a session after this many messages and append another one."""
    found = (await store.list_checkpoints(session_id, limit=200)).items
    point = branch_point(found, message_count, options.pop("branch_id", "branch-new"))
    state = plain_state(session_id, output=f"on {point.branch_id}")
    said = [user(f"instead of {message_count}"), user(point.branch_id)]
    return await store.branch_session(session_id, point, state, said, turn_meta(message_count), **options)


def turn_meta(step_count: int) -> CheckpointMeta:
    """Return a checkpoint that promotes nothing."""
    return CheckpointMeta("step-3", step_count, kind="turn")


async def prepare_branched(store: StateStore, session_id: str) -> None:
    """Create a session that was branched once, in the middle of a step."""
    await prepare(store, session_id)
    await store.update_status(session_id, "interrupted")
    await branch(store, session_id)


async def left_branch(store: StateStore, session_id: str) -> str:
    """Return the first branch that is not active."""
    return next(it.branch_id for it in await store.list_branches(session_id) if not it.is_active)


async def _switch(store: StateStore, session_id: str) -> Any:
    return await store.switch_branch(session_id, await left_branch(store, session_id))


async def _fork_checkpoint(store: StateStore, session_id: str) -> Any:
    oldest = (await store.list_checkpoints(session_id)).items[-1]
    return await store.fork_session(session_id, f"{session_id}.fork", checkpoint_id=oldest.checkpoint_id)


@dataclass(frozen=True)
class Operation:
    """One write, and what comes before it: nothing where the session must not exist yet."""

    run: Act
    prepare: Act | None = prepare


OPERATIONS: dict[str, Operation] = {
    "create_session": Operation(
        lambda store, name: store.create_session(
            name, agent_type="agent", custom_state={"a": [1, 2], "b": {}}, tags=["t"]
        ),
        prepare=None,
    ),
    "delete_session": Operation(lambda store, name: store.delete_session(name)),
    "save_state": Operation(lambda store, name: store.save_state(name, full_state(name))),
    "save_state_and_promote_staging": Operation(commit),
    "commit_without_expected_version": Operation(
        lambda store, name: store.save_state_and_promote_staging(
            name, plain_state(name), [user("three")], meta(3, "step-1")
        )
    ),
    "stage_changes": Operation(
        lambda store, name: store.stage_changes(
            name, "step-1", writes(push("items", items=["new"])), tool_call_id="call-1", result="again"
        )
    ),
    "promote_staging": Operation(lambda store, name: store.promote_staging(name, "step-1")),
    "discard_staging": Operation(lambda store, name: store.discard_staging(name)),
    "append_messages": Operation(lambda store, name: store.append_messages(name, [user("x"), user("y"), user("z")])),
    "merge_custom_state": Operation(
        lambda store, name: store.merge_custom_state(
            name, writes(put("deep", "b", value=2), add("n"), push("items", items=[7]), put("k", value={"v": 1}))
        )
    ),
    "update_status": Operation(lambda store, name: store.update_status(name, "paused")),
    "increment_step_count": Operation(lambda store, name: store.increment_step_count(name)),
    "increment_resume_count": Operation(lambda store, name: store.increment_resume_count(name)),
    "compare_and_set_status": Operation(
        lambda store, name: store.compare_and_set_status(name, "active", "failed", error="e", failure_reason="f")
    ),
    "set_interrupt_flag": Operation(lambda store, name: store.set_interrupt_flag(name, "other", run_id="run-y")),
    "clear_interrupt_flag": Operation(lambda store, name: store.clear_interrupt_flag(name)),
    "add_sub_session_refs": Operation(
        lambda store, name: store.add_sub_session_refs(name, [ref("sub-1", status="done"), ref("sub-3"), ref("sub-4")])
    ),
    "update_sub_session_ref": Operation(
        lambda store, name: store.update_sub_session_ref(name, "sub-2", status="done", completed_at=5)
    ),
    "truncate_messages": Operation(lambda store, name: store.truncate_messages(name, 3)),
    "create_run": Operation(lambda store, name: store.create_run(name, f"second-run-of-{name}", start_sequence=4)),
    "update_run_status": Operation(
        lambda store, name: store.update_run_status(
            f"run-of-{name}", "completed", step_count=3, output={"o": 1}, completed_at=9
        )
    ),
    "restore_checkpoint": Operation(_restore),
    "fork_session": Operation(lambda store, name: store.fork_session(name, f"{name}.fork")),
    "fork_session_from_checkpoint": Operation(_fork_checkpoint),
    "branch_session": Operation(branch),
    "switch_branch": Operation(_switch, prepare_branched),
}
