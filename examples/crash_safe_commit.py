"""A writer is killed with -9 in the middle of commits; nothing is ever half there.

Each commit of the writer appends three messages, counts one step and adds one note, from two tools that run in
parallel. So at any moment there must be exactly as many notes as checkpoints, as many steps as notes and
three times as many messages. The parent kills the writer at a random moment, opens the file again and counts.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from helix_agents import CheckpointMeta, StateStore, StateTracker, StepWrites, open_stores

SESSION = "crash-demo"
ROUNDS = 8


async def write_for_ever(url: str) -> None:
    """Commit step after step until the process is killed."""
    async with open_stores(url) as stores:
        store = stores.state
        while True:
            state = await store.load_state(SESSION)
            assert state is not None
            step = state.step_count + 1
            await asyncio.gather(
                stage(store, step, 0, tool_writes(state.custom_state, count=True)),
                stage(store, step, 1, tool_writes(state.custom_state, note=f"note of step {step}")),
            )
            print(f"committing {step}", flush=True)
            await store.save_state_and_promote_staging(
                SESSION,
                msgspec.structs.replace(state, custom_state=None, step_count=step),
                [{"role": "assistant", "content": "x" * 500}, *({"role": "tool", "content": "y" * 1500},) * 2],
                CheckpointMeta(step_id=f"step-{step}", step_count=step),
                expected_version=state.version,
            )


def tool_writes(custom_state: dict[str, object], *, count: bool = False, note: str = "") -> StepWrites:
    """What one tool does to its own draft of the state."""
    tracker = StateTracker(custom_state)
    if count:
        tracker.update(lambda draft: draft.increment("steps"))
    else:
        tracker.update(lambda draft: draft["notes"].append(note))
    return tracker.get_step_writes()


async def stage(store: StateStore, step: int, index: int, writes: StepWrites) -> None:
    """Keep one tool's writes until the step commits."""
    await store.stage_changes(SESSION, f"step-{step}", writes, tool_call_id=f"call-{index}", index=index)


async def inspect(url: str) -> str:
    """Open the file as a new process would, and check that everything belongs together."""
    async with open_stores(url) as stores:
        store = stores.state
        state = await store.load_state(SESSION)
        assert state is not None
        notes, steps = state.custom_state["notes"], state.custom_state["steps"]
        messages = await store.get_message_count(SESSION)
        checkpoints = (await store.list_checkpoints(SESSION, limit=1)).total
        latest = await store.get_latest_checkpoint(SESSION)
        assert len(notes) == steps == state.step_count == checkpoints, "a commit is half there"
        assert messages == 3 * steps, "messages of a commit are missing"
        assert state.version == 1 + steps, "a commit moved the version twice or not at all"
        assert latest is None or latest.state.custom_state == state.custom_state, "the checkpoint differs"
        return f"{steps} commits, {messages} messages, version {state.version}: all of them whole"


async def prepare(url: str) -> None:
    """Create the session that the writer works on."""
    async with open_stores(url) as stores:
        await stores.state.create_session(SESSION, agent_type="demo", custom_state={"steps": 0, "notes": []})


def kill_in_the_middle(url: str, wait_for_commits: int) -> None:
    """Start a writer, let it make some commits, kill it with -9 shortly after it has begun another."""
    writer = subprocess.Popen([sys.executable, __file__, url], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(wait_for_commits):
        writer.stdout.readline()
    # A commit takes about a millisecond; any moment of it may be the last.
    time.sleep(random.uniform(0, 0.0015))
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()


def main() -> None:
    """Kill, open, count; several times."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{Path(folder) / 'crash.db'}"
        asyncio.run(prepare(url))
        for attempt in range(1, ROUNDS + 1):
            kill_in_the_middle(url, random.randint(2, 12))
            print(f"kill -9 number {attempt}: {asyncio.run(inspect(url))}")
        print("Nothing is half there.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(write_for_ever(sys.argv[1]))
    else:
        main()
