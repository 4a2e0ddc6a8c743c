"""What operations cost in rows written, which is what Cloudflare bills. Runs inside a Worker and outside of it."""

from __future__ import annotations

from typing import Any

from helix_agents.state import StateTracker
from helix_agents.types import CheckpointMeta, SessionState


async def costs(state: Any, streams: Any, rows: Any) -> dict[str, int]:
    """Return rows written by each; `rows()` returns how many were written so far."""
    found: dict[str, int] = {}

    async def measure(name: str, work: Any) -> None:
        before = rows()
        await work
        found[name] = rows() - before

    await state.session_exists("nobody")  # the tables exist
    custom = {"items": ["x"], "count": 0, "topic": "t"}
    await measure("create_session", state.create_session("s", agent_type="a", custom_state=custom))
    for step in (1, 2):
        for call in (0, 1):
            tracker = StateTracker(custom)
            tracker.update(lambda draft: draft["items"].append("item"))
            if call:
                tracker.update(lambda draft: draft.increment("count"))
            staging = state.stage_changes(
                "s", f"step{step}", tracker.get_step_writes(), tool_call_id=f"call{call}", index=call, result={"ok": 1}
            )
            await measure("stage_changes", staging)
        fields = SessionState(session_id="s", agent_type="a", step_count=step, status="active")
        messages = [{"role": "assistant", "content": "words"}] * 3
        meta = CheckpointMeta(step_id=f"step{step}", step_count=step, stream_sequence=step)
        await measure("commit", state.save_state_and_promote_staging("s", fields, messages, meta))
    await measure("compare_and_set_status", state.compare_and_set_status("s", ["active"], "paused"))
    writer = await streams.create_writer("chunks", "run", "a")

    async def pour() -> None:
        for number in range(1000):
            await writer.write({"type": "text_delta", "delta": str(number)})
            if number % 10 == 9:
                await writer.flush()
        await writer.close()

    await measure("thousand_chunks_by_ten", pour())
    return found
