"""The state tracker against hand-written copy-on-write expressions and against PyPI `patchdiff`.

    python -m benchmarks.tracker

Ours is the whole way of a tool call: reset, update, step writes, JSON Patch. The hand-written expression only makes the
new state. `patchdiff.produce` makes the new state and its patches (and the reverse ones).
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from typing import Any

from patchdiff.produce import produce

from benchmarks.pairing import Report, pair
from helix_agents.state import StateTracker, step_writes_to_rfc6902

Change = Callable[[Any], object]
State = dict[str, Any]
Contestants = dict[str, Callable[[], object]]


class Ours:
    """One tracker that goes through one change again and again."""

    def __init__(self, state: State, change: Change) -> None:
        self.tracker = StateTracker(state)
        self.change = change

    def __call__(self) -> None:
        tracker = self.tracker
        tracker.reset_tracking()
        tracker.update(self.change)
        writes = tracker.get_step_writes()
        assert step_writes_to_rfc6902(writes)


class ByHand:
    """The expression that a careful programmer would write for this one change."""

    def __init__(self, state: State, expression: Callable[[State], State]) -> None:
        self.state = state
        self.expression = expression

    def __call__(self) -> None:
        self.state = self.expression(self.state)


def small_state() -> State:
    return {
        "count": 0,
        "status": "active",
        "topic": "agents",
        "user": {"profile": {"name": "Alice", "age": 41}, "tags": ["a", "b"]},
        "notes": [{"id": n, "text": "note"} for n in range(5)],
        "flags": {"verbose": False},
    }


def set_leaf(draft: Any) -> None:
    profile = draft["user"]["profile"]
    profile["age"] = profile["age"] + 1


def set_leaf_by_hand(s: State) -> State:
    user = s["user"]
    return {**s, "user": {**user, "profile": {**user["profile"], "age": user["profile"]["age"] + 1}}}


def count_up(draft: Any) -> None:
    draft["count"] += 1


def count_up_by_hand(s: State) -> State:
    return {**s, "count": s["count"] + 1}


def edit_item(draft: Any) -> None:
    item = draft["items"][len(draft["items"]) // 2]
    item["n"] = item["n"] + 1


def edit_item_by_hand(s: State) -> State:
    items = s["items"]
    at = len(items) // 2
    return {**s, "items": [*items[:at], {**items[at], "n": items[at]["n"] + 1}, *items[at + 1 :]]}


def push(draft: Any) -> None:
    draft["items"].append({"n": 1})


def push_by_hand(s: State) -> State:
    return {**s, "items": [*s["items"], {"n": 1}]}


def items_state(size: int) -> State:
    return {"items": [{"n": n, "text": "item"} for n in range(size)], "count": 0}


def sized_state(size_bytes: int) -> State:
    """About this many bytes of JSON, in documents of 20 sections; the leaf that is set sits in the first."""
    section = {"title": "t" * 20, "tags": ["a", "b", "c"], "body": "x" * 380}
    document = {f"section {n}": dict(section) for n in range(20)}
    count = max(1, size_bytes // len(json.dumps(document)))
    return {"documents": {f"doc {n}": json.loads(json.dumps(document)) for n in range(count)}, "leaf": {"n": 0}}


def set_in_document(draft: Any) -> None:
    leaf = draft["leaf"]
    leaf["n"] = leaf["n"] + 1


def small(report: Report) -> None:
    for name, change, expression in (
        ("one counter", count_up, count_up_by_hand),
        ("one nested leaf", set_leaf, set_leaf_by_hand),
    ):
        state = small_state()
        ours = Ours(state, change)
        contestants: Contestants = {"ours": ours, "by hand": ByHand(state, expression), "ours again": ours}
        paired = pair(contestants, rounds=600, repeat=50)
        report.line(f"small update, {name}: times by hand", paired.ratio("ours", "by hand"), at_most=20)
        report.self_check(f"small update, {name}", paired, "ours", "ours again")
        print(f"     {paired.median_ns('ours') / 1000:.1f} us, by hand {paired.median_ns('by hand') / 1000:.2f} us")


def lists(report: Report) -> None:
    for name, size, change, expression, rounds in (
        ("one edit in 10,000 items", 10_000, edit_item, edit_item_by_hand, 1000),
        ("one push to 100,000 items", 100_000, push, push_by_hand, 200),
    ):
        state = items_state(size)
        ours = Ours(state, change)
        contestants: Contestants = {"ours": ours, "by hand": ByHand(state, expression), "ours again": ours}
        paired = pair(contestants, rounds=rounds)
        report.line(f"{name}: times by hand", paired.ratio("ours", "by hand"), at_most=4)
        report.self_check(name, paired, "ours", "ours again")
        print(f"     {paired.median_ns('ours') / 1000:.0f} us, by hand {paired.median_ns('by hand') / 1000:.0f} us")


def leaf_in_big_state(report: Report) -> None:
    small_one, big_one = sized_state(10_000), sized_state(10_000_000)
    paired = pair(
        {"10 KB": Ours(small_one, set_in_document), "10 MB": Ours(big_one, set_in_document)}, rounds=600, repeat=50
    )
    report.line("leaf set in 10 MB: times that in 10 KB", paired.ratio("10 MB", "10 KB"), at_most=1.5)


def against_patchdiff(report: Report) -> None:
    for size, rounds in ((1_000, 60), (10_000, 20), (100_000, 5)):
        for name, change in (("edit", edit_item), ("push", push), ("counter", count_up)):
            state = items_state(size)

            def theirs(state: State = state, change: Any = change) -> None:
                assert produce(state, change)[1]

            paired = pair({"ours": Ours(state, change), "patchdiff": theirs}, rounds=rounds, warmup=1)
            times = paired.ratio("patchdiff", "ours")
            report.line(f"patchdiff, {name} at {size:,} items: times ours", times, at_least=1)


def main() -> int:
    print(f"Python {platform.python_version()} on {platform.machine()}")
    report = Report()
    small(report)
    lists(report)
    leaf_in_big_state(report)
    against_patchdiff(report)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
