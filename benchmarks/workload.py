"""The session workload: what one step of an agent writes, the same for every contestant.

A step appends one assistant message (about 600 bytes) and two tool results (about 1.5 KB each), bumps a counter and
appends one item of 200 bytes to a list. Texts are random words from a fixed seed, made before the clock runs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from helix_agents import clock
from helix_agents.state import StateTracker, StepWrites
from helix_agents.stores.state.contract import StateStore
from helix_agents.types import CheckpointMeta, SessionState

SEED = 20
START = {"counter": 0, "items": []}


@dataclass(frozen=True)
class Step:
    """What one step writes. `logical_bytes` is the JSON text of it, the counter's few digits left aside."""

    number: int
    messages: list[dict[str, Any]]
    item: dict[str, Any]

    @property
    def logical_bytes(self) -> int:
        return sum(len(json.dumps(value, separators=(",", ":"))) for value in (*self.messages, self.item))


def steps(count: int) -> Iterator[Step]:
    """The steps of one session, numbered from 1."""
    chance = random.Random(SEED)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(2_000)]

    def text(length: int) -> str:
        return " ".join(chance.choices(words, k=length // 2))[:length]

    for number in range(1, count + 1):
        calls = [{"id": f"call-{number}-{place}", "name": "search", "arguments": {"query": text(20)}} for place in "ab"]
        messages: list[dict[str, Any]] = [{"role": "assistant", "content": text(390), "tool_calls": calls}]
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": text(1_430)} for call in calls]
        yield Step(number, messages, {"number": number, "text": text(170)})


@dataclass
class OurSession:
    """One session on one of our stores, driven as an executor drives it: stage what the tool wrote, then commit."""

    store: StateStore
    session_id: str
    start: dict[str, Any] = field(default_factory=lambda: dict(START))
    version: int = 1

    async def create(self) -> OurSession:
        created = await self.store.create_session(self.session_id, agent_type="benchmark", custom_state=self.start)
        self.fields = SessionState(self.session_id, "benchmark", created.stream_id, created_at=created.created_at)
        self.tracker = StateTracker(self.start)
        return self

    def writes_of(self, step: Step) -> StepWrites:
        """What the step's tool wrote, by way of its tracker."""

        def change(draft: Any) -> None:
            draft.increment("counter")
            draft["items"].append(step.item)

        self.tracker.reset_tracking()
        self.tracker.update(change)
        return self.tracker.get_step_writes()

    async def stage(self, step: Step, writes: StepWrites) -> None:
        await self.store.stage_changes(self.session_id, f"step-{step.number}", writes, tool_call_id="call-a")

    async def commit(self, step: Step) -> None:
        """The one atomic write that ends the step: `custom_state` None leaves it to the staged writes."""
        done = await self.store.save_state_and_promote_staging(
            self.session_id,
            self.fields,
            step.messages,
            CheckpointMeta(f"step-{step.number}", step.number, step.number * 10),
            expected_version=self.version,
        )
        self.version = done.new_version

    async def whole_step(self, step: Step) -> None:
        await self.stage(step, self.writes_of(step))
        await self.commit(step)


async def in_turns(
    ours: OurSession, theirs: Callable[[Step], Awaitable[None]], count: int
) -> tuple[dict[str, list[float]], int]:
    """Our commits and those of another library on the same steps: nanoseconds of each, and the logical bytes of all."""
    samples: dict[str, list[float]] = {"ours": [], "theirs": []}
    logical = 0
    for step in steps(count):
        logical += step.logical_bytes
        await ours.stage(step, ours.writes_of(step))
        start = perf_counter_ns()
        await ours.commit(step)
        between = perf_counter_ns()
        await theirs(step)
        samples["ours"].append(between - start)
        samples["theirs"].append(perf_counter_ns() - between)
    return samples, logical


def now_ms() -> int:
    """The time as a hand-written store would stamp it."""
    return clock.system_clock()
