"""Random programs over JSON: the same program runs on a draft and on plain Python, and both must end up the same.

A program is a list of instructions of four numbers: which container, which operation, two operands. The operations
cover the dict and list API, moves of subtrees, and aliases of live subtrees and of fresh containers.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from helix_agents.state import StateTracker, thaw

EXAMPLES = int(os.environ.get("HELIX_EXAMPLES", "60"))
modest = settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

MOST_CHARACTERS = 4000
KEYS = ["a", "b", "c", "x/y", "m~n", "", "é", "0", "-"]
atoms = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e16])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
)
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)
Instruction = tuple[int, int, int, int]
BUSY_STATE = {
    "a": [{"a": 1, "l": []}, {"b": [1, {"c": 2}]}, [3, {"a": [4]}], 5],
    "b": {"a": {"a": 1, "b": [1, {"a": 0}]}, "c": {"x/y": {}}},
    "c": 7,
}


def long_program(seed: int) -> list[Instruction]:
    """Return a strategy with denser programs than the default, reported as one number."""
    draw = Random(seed).randrange
    return [(draw(10_000), draw(10_000), draw(10_000), draw(10_000)) for _ in range(draw(4, 16))]


states = st.dictionaries(st.sampled_from(KEYS), values, max_size=5) | st.just(BUSY_STATE)
instructions = st.tuples(*[st.integers(0, 10_000)] * 4)
programs = st.lists(instructions, max_size=8) | st.integers(0, 2**32).map(long_program)
updates = st.lists(programs, min_size=1, max_size=4)
pools = st.lists(values, min_size=1, max_size=6)


def text(value: Any) -> str:
    """Return a string for comparisons that distinguish `1`, `1.0` and `True`."""
    return json.dumps(value, sort_keys=True)


def is_object(node: Any) -> bool:
    return hasattr(node, "keys")


def is_container(node: Any) -> bool:
    return hasattr(node, "keys") or hasattr(node, "append")


def places(node: Any) -> list[Any]:
    return sorted(node.keys()) if is_object(node) else list(range(len(node)))


def containers(node: Any, found: list[Any], seen: set[int]) -> list[Any]:
    if id(node) not in seen:
        seen.add(id(node))
        found.append(node)
        for place in places(node):
            if is_container(node[place]):
                containers(node[place], found, seen)
    return found


def reaches(node: Any, target: Any) -> bool:
    """Return whether putting `node` into `target` would make a cycle."""
    if node is target:
        return True
    return any(reaches(node[place], target) for place in places(node) if is_container(node[place]))


def plain_increment(node: Any, place: Any, by: int | float) -> None:
    node[place] = (node.get(place, 0) if is_object(node) else node[place]) + by


def draft_increment(node: Any, place: Any, by: int | float) -> None:
    if hasattr(node, "increment"):
        node.increment(place, by)
    else:
        plain_increment(node, place, by)  # a container that the program itself put in


Increment = Callable[[Any, Any, int | float], None]


class Machine:
    """Runs one program on one root."""

    def __init__(self, root: Any, pool: list[Any], increment: Increment) -> None:
        self.root = root
        self.fresh = [copy.deepcopy(value) for value in pool]
        self.taken: list[Any] = []
        self.increment = increment

    def run(self, program: list[Instruction]) -> None:
        for which, what, b, c in program:
            if len(text(thaw(self.root))) > MOST_CHARACTERS:
                return  # aliases of aliases double the tree with every instruction
            nodes = containers(self.root, [], set())
            node = nodes[which % len(nodes)]
            value = self.acyclic(self.fresh[c % len(self.fresh)], node)
            alias = self.acyclic(nodes[c % len(nodes)], node)
            if is_object(node):
                self.on_object(node, what, b, c, value, alias)
            else:
                self.on_list(node, what, b, c, value, alias)

    def acyclic(self, value: Any, node: Any) -> Any:
        return thaw(value) if is_container(value) and reaches(value, node) else value

    def taken_one(self, node: Any, c: int) -> Any:
        return self.acyclic(self.taken[c % len(self.taken)], node) if self.taken else None

    def by(self, c: int) -> int | float:
        return [1, 2, -3, 0, 0.1, 0.5, -0.5, 1e16][c % 8]

    def on_object(self, node: Any, what: int, b: int, c: int, value: Any, alias: Any) -> None:
        key, keys = KEYS[b % len(KEYS)], places(node)
        there = keys[b % len(keys)] if keys else None
        match what % 17:
            case 0:
                node[key] = value
            case 1 if keys:
                del node[there]
            case 2 if keys:
                self.taken.append(node.pop(there))
            case 3:
                node[key] = self.taken_one(node, c)
            case 4:
                node.update({key: b, KEYS[c % len(KEYS)]: value})
            case 5 | 6:
                node.setdefault(key, [] if c % 2 else {})
            case 7:
                node.setdefault(key, value if not is_container(value) or len(value) else thaw(value))
            case 8 | 9:
                if type(node.get(key, 0)) in (int, float):
                    self.increment(node, key, self.by(c))
            case 10:
                node[key] = alias
            case 11:
                node[key] = {"w": alias, "v": [value]}
            case 12:
                node.clear()
            case 13 if keys and type(node[there]) is int:
                node[there] += 1
            case 14 if keys:
                node[there] = node[there]
            case 15 if keys:
                node[there] = thaw(node[there])  # an equal value is no change
            case 16:
                node |= {key: value}

    def on_list(self, node: Any, what: int, b: int, c: int, value: Any, alias: Any) -> None:
        size = len(node)
        at, other = (b % size, c % size) if size else (0, 0)
        match what % 19:
            case 0 | 1:
                node.append(value)
            case 2:
                node.extend([b, value])
            case 3:
                node.insert(b % (size + 1), value)
            case 4 if size:
                node[at - size * (c % 2)] = value
            case 5 if size:
                del node[at]
            case 6 if size:
                self.taken.append(node.pop())
            case 7 if size:
                self.taken.append(node.pop(0))
            case 8:
                node.append(self.taken_one(node, c))
            case 9:
                node.reverse()
            case 10:
                node.sort(key=lambda item: text(thaw(item)))
            case 11 if size > 1:
                node[at], node[other] = node[other], node[at]
            case 12:
                node[at : at + c % 3] = [c, value]
            case 13:
                del node[at : at + c % 3]
            case 14 if size and type(node[at]) in (int, float):
                self.increment(node, at, self.by(c))
            case 15:
                node[::2] = [c] * len(range(0, size, 2))
            case 16 if size > 4:
                node.clear()
            case 17:
                node.append(alias)
            case 18 if size:
                node.remove(node[at])


def run_on_plain(state: Any, program: list[Any], pool: list[Any]) -> Any:
    plain = json.loads(json.dumps(thaw(state)))
    Machine(plain, pool, plain_increment).run(program)
    return plain


def run_on_tracker(tracker: StateTracker, program: list[Any], pool: list[Any]) -> None:
    tracker.update(lambda draft: Machine(draft, pool, draft_increment).run(program))


def tracked(base: Any, programs_of_tool: list[Any], pool: list[Any]) -> StateTracker:
    """Return a tool: a tracker of its own, after some updates."""
    tracker = StateTracker(base)
    for program in programs_of_tool:
        run_on_tracker(tracker, program, pool)
    return tracker
