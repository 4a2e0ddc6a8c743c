"""What the executor adds to a step: a scripted model, no-op tools, against the bare writes that a step needs.

    python -m benchmarks.executor_overhead [url] [--steps 200] [--tools 3] [--profile]

Baseline in the same run: the same commit, with the same messages and staged writes, and the same chunks written and
flushed, by hand. The difference is what the executor costs: its own Python and the staging that makes a crash harmless.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from helix_agents.agent import Agent
from helix_agents.backends.registry import Stores, open_stores
from helix_agents.executor import AgentExecutor, Hooks
from helix_agents.executor.run.hooks import RunInfo
from helix_agents.llm.contract import ModelEvent, ModelRequest, TextDelta, ToolCallDelta
from helix_agents.state import StepWrites
from helix_agents.tools import ToolContext, tool
from helix_agents.types import CheckpointMeta

TEXT = "A sentence of the model that comes in a few pieces."


@tool
async def no_op(n: int, ctx: ToolContext) -> str:
    """Do nothing but count."""
    ctx.update_state(lambda draft: draft.increment("n"))
    return "ok"


class ConstantLLM:
    """Says the same at every step, at a cost that does not grow with the conversation."""

    def __init__(self, steps: int, tools: int) -> None:
        self._steps = steps
        self._tools = tools

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for piece in range(0, len(TEXT), 12):
            yield TextDelta(TEXT[piece : piece + 12])
        if request.step <= self._steps:
            for n in range(self._tools):
                yield ToolCallDelta(n, id=f"call_{request.step}_{n}", name="no_op", arguments='{"n":1}')


class StepTimes(Hooks):
    """Notes when steps end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
        self.ends.append(time.perf_counter())


async def with_executor(stores: Stores, session_id: str, steps: int, tools: int, *, usage: bool) -> list[float]:
    """The time of every step of a run, in seconds."""

    times = StepTimes()
    agent = Agent("bench", tools=[no_op], state={"n": 0}, max_steps=steps + 2)
    usage_store = stores.usage if usage else None
    async with AgentExecutor(
        stores.state, stores.streams, ConstantLLM(steps, tools), usage_store=usage_store, hooks=[times]
    ) as executor:
        await (await executor.execute(agent, "Go", session_id=session_id)).result()
    return [after - before for before, after in zip(times.ends, times.ends[1:], strict=False)][: steps - 1]


async def bare(stores: Stores, session_id: str, steps: int, tools: int, *, staging: bool) -> list[float]:
    """The same writes by hand: chunks, one commit; with `staging` also the rows that the tools' writes come from."""
    state = await stores.state.create_session(session_id, agent_type="bench", custom_state={"n": 0})
    version = state.version
    times = []
    async with await stores.streams.create_writer(session_id, "run", "bench") as writer:
        for step in range(1, steps + 1):
            began = time.perf_counter()
            for piece in range(0, len(TEXT), 12):
                await writer.write({"type": "text_delta", "delta": TEXT[piece : piece + 12], "step": step})
            for n in range(tools):
                call = f"call_{step}_{n}"
                await writer.write({"type": "tool_arg_delta", "tool_call_id": call, "delta": '{"n":1}', "step": step})
                await writer.write({"type": "tool_start", "tool_call_id": call, "tool_name": "no_op", "step": step})
                await writer.write({"type": "state_patch", "patches": [{"op": "add", "path": "/n"}], "step": step})
                await writer.write({"type": "tool_end", "tool_call_id": call, "result": "ok", "step": step})
                if staging:
                    ops = [{"kind": "increment", "path": ["n"], "by": 1, "value": 1}]
                    await stores.state.stage_changes(
                        session_id, f"s{step}", StepWrites(ops), tool_call_id=call, index=n
                    )
            sequence = await writer.flush()
            messages: list[dict[str, Any]] = [{"role": "assistant", "content": TEXT}]
            messages += [{"role": "tool", "tool_call_id": f"call_{n}", "content": "ok"} for n in range(tools)]
            meta = CheckpointMeta(f"s{step}", step, sequence)
            done = await stores.state.save_state_and_promote_staging(
                session_id, state, messages, meta, expected_version=version
            )
            version = done.new_version
            await writer.write({"type": "step_committed", "checkpoint_id": done.checkpoint_id, "step": step})
            times.append(time.perf_counter() - began)
    return times


async def report(name: str, measured: Awaitable[list[float]]) -> float:
    """Measure, print, and answer the median in milliseconds."""
    busy = time.process_time()
    times = await measured
    busy = (time.process_time() - busy) / len(times) * 1000
    median = statistics.median(times) * 1000
    p95 = sorted(times)[int(len(times) * 0.95)] * 1000
    print(f"{name:36} median {median:7.3f} ms   p95 {p95:7.3f} ms   processor {busy:6.3f} ms a step")
    return median


async def main(url: str, steps: int, tools: int, *, profile: bool) -> None:
    async with open_stores(url) as stores:
        await with_executor(stores, "warm-up", 20, tools, usage=False)
        plain = await report("bare: chunks and commit", bare(stores, "bare", steps, tools, staging=False))
        staged = await report("bare: chunks, staging and commit", bare(stores, "staged", steps, tools, staging=True))
        profiler = cProfile.Profile() if profile else None
        if profiler:
            profiler.enable()
        whole = await report("executor", with_executor(stores, "run", steps, tools, usage=False))
        if profiler:
            profiler.disable()
        counted = await report("executor with a usage store", with_executor(stores, "used", steps, tools, usage=True))
    print(f"executor over chunks and commit: {whole - plain:.3f} ms a step (goal: at most 2)")
    print(f"  of which staging {staged - plain:.3f} ms; usage adds {counted - whole:.3f} ms")
    if profiler:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tools", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = given.url or f"sqlite:{Path(folder) / 'bench.db'}"
        asyncio.run(main(where, given.steps, given.tools, profile=given.profile))
