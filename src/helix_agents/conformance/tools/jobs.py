"""What a worker of the concurrency checks does with a store, by name, so that a task and a process can do the same.

A job gets a store and plain parameters and returns JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import EpochConflict, SessionExists, VersionConflict
from ...stores.state.contract import StateStore
from ...types import RunRecord
from .sample import add, meta, plain_state, push, put, ref, user, writes

Params = dict[str, Any]
Job = Callable[[StateStore, Params], Awaitable[Any]]


async def create(store: StateStore, params: Params) -> str:
    """Claim a session id."""
    try:
        await store.create_session(params["session_id"], agent_type="agent")
    except SessionExists:
        return "exists"
    return "created"


async def claim(store: StateStore, params: Params) -> str:
    """Claim a session that exists."""
    session_id, worker, epoch = params["session_id"], params["worker"], params["epoch"]
    try:
        run = RunRecord(f"run-{worker}-{epoch}", session_id, 0)
        await store.save_state(session_id, plain_state(session_id), new_epoch=epoch, run=run)
    except EpochConflict:
        return "lost"
    return "claimed"


async def append(store: StateStore, params: Params) -> list[int]:
    """Append messages three at a time; return the counts from the store."""
    worker = params["worker"]
    return [
        await store.append_messages(params["session_id"], [user(f"{worker}.{number}.{part}") for part in range(3)])
        for number in range(params["times"])
    ]


async def merge(store: StateStore, params: Params) -> list[str]:
    """Append to a shared list, increment a shared counter and set the worker's own keys."""
    worker = params["worker"]
    warnings: list[str] = []
    for number in range(params["times"]):
        warnings += await store.merge_custom_state(
            params["session_id"],
            writes(
                push("items", items=[f"{worker}.{number}"]),
                push("deep", "items", items=[f"{worker}.{number}"]),
                add("count"),
                add("deep", "count", by=2),
                put(f"{worker}.{number}", value=number),
                put("shared", f"{worker}.{number}", value=number),
            ),
        )
    return warnings


async def increment(store: StateStore, params: Params) -> list[int]:
    """Increment both counters; return the step counts from the store."""
    seen: list[int] = []
    for _ in range(params["times"]):
        seen.append(await store.increment_step_count(params["session_id"]))
        await store.increment_resume_count(params["session_id"])
    return seen


async def stage(store: StateStore, params: Params) -> None:
    """Stage tool calls and record child sessions."""
    worker = params["worker"]
    for number in range(params["times"]):
        name = f"{worker}.{number}"
        await store.stage_changes(
            params["session_id"], "step-1", writes(push("items", items=[name])), tool_call_id=name, index=number
        )
        await store.add_sub_session_refs(params["session_id"], [ref(name)])


async def commit(store: StateStore, params: Params) -> int | None:
    """Commit once at an expected version; return the new version, or None for a lost race."""
    try:
        done = await store.save_state_and_promote_staging(
            params["session_id"],
            plain_state(params["session_id"], output=params["worker"]),
            [user(params["worker"])],
            meta(step_count=1),
            expected_version=params["expected_version"],
        )
    except VersionConflict:
        return None
    return done.new_version


async def commit_many(store: StateStore, params: Params) -> list[int]:
    """Commit without an expected version, one message each; return the message counts from the store."""
    worker = params["worker"]
    counts: list[int] = []
    for number in range(params["times"]):
        done = await store.save_state_and_promote_staging(
            params["session_id"],
            plain_state(params["session_id"]),
            [user(f"{worker}.{number}.0")],
            meta(step_count=number + 1, step_id=params.get("step_id", "step-2")),
        )
        counts.append(done.message_count)
    return counts


async def swap(store: StateStore, params: Params) -> bool:
    """Try to swap the status of an active session; return whether it worked."""
    return (await store.compare_and_set_status(params["session_id"], "active", "paused")).ok


async def run(store: StateStore, params: Params) -> list[int]:
    """Start runs; return their turns."""
    names = [f"run-{params['worker']}.{number}" for number in range(params["times"])]
    return [(await store.create_run(params["session_id"], name)).turn for name in names]


async def flag(store: StateStore, params: Params) -> list[Any]:
    """Read the flag, then set one; return the flag that was read."""
    seen = await store.check_interrupt_flag(params["session_id"])
    await store.set_interrupt_flag(params["session_id"], params["worker"], run_id="run-1")
    return [seen.reason, seen.run_id] if seen else []


async def opened(store: StateStore, params: Params) -> bool:
    """Return what the store lists; the job was to open it."""
    return await store.session_exists(params["session_id"])


JOBS: dict[str, Job] = {
    made.__name__: made
    for made in (create, claim, append, merge, increment, stage, commit, commit_many, swap, run, flag, opened)
}
