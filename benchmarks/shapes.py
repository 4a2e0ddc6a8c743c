"""Shapes of work: what the tools of a step may write, for benchmarks that compare them with statements by hand.

A shape says what each tool does to its draft, and what a hand-written store would write for the same step: values of
keys, members of objects, items of a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.workload import OurSession, Step
from helix_agents.state import StateTracker, StepWrites

START: dict[str, Any] = {
    "counter": 0,
    "items": [],
    "number": 0,
    "topic": "",
    "user": {"name": "", "age": 1, "city": "Berlin"},
    "labels": ["a", "b", "c"],
    "first": 0,
    "second": 0,
    "third": 0,
}

Change = Callable[[Any, Step], None]


class ByHand(NamedTuple):
    """What a hand-written store writes: a counter, values by key, how many items."""

    counts: bool = False
    values: tuple[tuple[str, Any], ...] = ()
    items: int = 0


class Shape(NamedTuple):
    """One kind of step."""

    title: str
    tools: tuple[Change, ...]
    by_hand: Callable[[Step], ByHand]


def _text(step: Step) -> str:
    return str(step.item["text"])


def _user(step: Step) -> dict[str, Any]:
    return {"name": f"user {step.number}", "age": step.number, "city": "Berlin"}


def _labels(step: Step) -> list[str]:
    return [f"a{step.number}", f"b{step.number}", "c"]


def _count_and_append(draft: Any, step: Step) -> None:
    draft.increment("counter")
    draft["items"].append(step.item)


def _set(key: str, value: Callable[[Step], Any], *, appends: bool = False) -> Change:
    def change(draft: Any, step: Step) -> None:
        draft[key] = value(step)
        if appends:
            draft["items"].append(step.item)

    return change


def _set_member(draft: Any, step: Step) -> None:
    draft["user"]["name"] = f"user {step.number}"


def _number(step: Step) -> int:
    return step.number


THREE = ("first", "second", "third")

SHAPES = (
    Shape("increment and append", (_count_and_append,), lambda _: ByHand(counts=True, items=1)),
    Shape("nothing", (), lambda _: ByHand()),
    Shape(
        "assign a number and append",
        (_set("number", _number, appends=True),),
        lambda step: ByHand(values=(("number", step.number),), items=1),
    ),
    Shape("assign a text", (_set("topic", _text),), lambda step: ByHand(values=(("topic", _text(step)),))),
    Shape("assign an object", (_set("user", _user),), lambda step: ByHand(values=(("user", _user(step)),))),
    Shape("set a member", (_set_member,), lambda step: ByHand(values=(("user.name", f"user {step.number}"),))),
    Shape("assign a small list", (_set("labels", _labels),), lambda step: ByHand(values=(("labels", _labels(step)),))),
    Shape(
        "three tools, each assigns and appends",
        tuple(_set(key, _number, appends=True) for key in THREE),
        lambda step: ByHand(values=tuple((key, step.number) for key in THREE), items=3),
    ),
)


@dataclass
class ShapedSession(OurSession):
    """A session of ours whose tools write as a shape says."""

    start: dict[str, Any] = field(default_factory=lambda: dict(START))

    async def stage_shape(self, shape: Shape, step: Step) -> None:
        """Run the tools, each on a tracker of its own, and stage what they wrote."""
        state = self.tracker.state
        for place, change in enumerate(shape.tools):
            tracker = StateTracker(state)
            tracker.update(lambda draft, change=change: change(draft, step))  # type: ignore[misc]
            await self._stage(step, place, tracker.get_step_writes())

    async def _stage(self, step: Step, place: int, writes: StepWrites) -> None:
        await self.store.stage_changes(
            self.session_id, f"step-{step.number}", writes, tool_call_id=f"call-{place}", index=place
        )
