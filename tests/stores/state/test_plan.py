"""The planner alone: what it decides on a table of cells is what the kit's naive merge says, at every checkpoint."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import pytest

from helix_agents import RunRecord
from helix_agents.conformance.state.model.merge import naive_apply, naive_merge
from helix_agents.conformance.tools.sample import add, drop, plain_state, push, put, writes
from helix_agents.stores.state.cells import combine, plan_merge, prepare, replacement
from helix_agents.stores.state.commit import CellName, Commit, CommitRefused, CustomChanges, Identity, StagedStep
from helix_agents.stores.state.plan import Counters, Plan, Seen, decide, needs
from helix_agents.types import Owner

from .cell_table import CHECKPOINT, SESSION, Table

VALUES: list[Any] = [0, 7, "x", None, [], [1, 2], ["a", {"b": 1}, 3], {}, {"m": 1}, {"m": [1], "n": 2}]
IDENTITY = Identity("another", 1, "agent", None)
KEYS = ["a", "b", 'q"\\']


def some_op(chance: random.Random) -> dict[str, Any]:
    key, value = chance.choice(KEYS), chance.choice(VALUES)
    return chance.choice(
        [
            put(key, value=value),
            put(key, chance.choice(["m", "n", 0, 1]), value=value),
            drop(key),
            drop(key, "m"),
            push(key, items=[value, 1]),
            push(key, "m", items=[value]),
            add(key),
            add(key, "m"),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_plans_end_where_the_naive_merge_does_and_every_checkpoint_can_be_read_back(seed: int) -> None:
    chance = random.Random(seed)
    table = Table()
    model: dict[str, Any] = {}
    seen: dict[int, dict[str, Any]] = {}
    for _ in range(40):
        action = chance.random()
        if action < 0.2:
            model = {key: copy.deepcopy(chance.choice(VALUES)) for key in KEYS if chance.random() < 0.7}
            changes = replacement(model)
        else:
            tools = [writes(*(some_op(chance) for _ in range(chance.randint(1, 3)))) for _ in range(2)]
            in_order = action < 0.4
            ready = prepare(tools[0]) if in_order else combine([prepare(each) for each in tools])
            known = {name: table.cells.text(name) for name in ready.touched}
            changes, _ = plan_merge(ready, known, in_order=in_order)
            model = (
                naive_apply(model, list(tools[0].ops))[0]
                if in_order
                else naive_merge(model, [list(each.ops) for each in tools])[0]
            )
        makes_one = chance.random() < 0.5
        table.commit(changes, checkpoint=makes_one)
        assert table.state() == model
        if makes_one:
            seen[table.session.checkpoint_count] = model
        if seen and chance.random() < 0.1:
            number = chance.choice(list(seen))
            table.cells.restore(number)
            table.session = table.session._replace(checkpoint_count=number)
            seen = {each: state for each, state in seen.items() if each <= number}
            model = seen[number]
        assert {number: table.state(number) for number in seen} == seen
    names = [(kept.number, kept.name) for kept in table.cells.past]
    assert len(set(names)) == len(names)  # an overwritten value is stored once
    assert all(kept.cell.since + 1 < kept.number for kept in table.cells.past)  # and only if a checkpoint has it


def everything_violated() -> tuple[Commit, Seen]:
    commit = Commit(
        session_id=SESSION,
        now=1,
        owner=Owner("born", 3),
        expected_version=8,
        new_epoch=3,
        promote=StagedStep("step", (("call", "call", "token"),)),
        custom=CustomChanges(expected={CellName("k"): "1"}),
        run=RunRecord("run", SESSION, 0),
        restore_number=3,
    )
    seen = Seen()
    seen.run_is_taken = True
    return commit, seen


def test_the_first_violated_guard_is_the_one_that_is_told() -> None:
    commit, seen = everything_violated()
    told = []
    for mend in ("session", "incarnation", "version", "epoch", "new epoch", "staged", "cells", "run", "checkpoint"):
        outcome = decide(commit, seen)
        assert isinstance(outcome, CommitRefused)
        told.append(outcome.reason)
        match mend:
            case "session":
                seen.session, seen.identity = Counters(7, 0, 0, 0, 0, 2, "active"), IDENTITY
            case "incarnation":
                seen.identity = IDENTITY._replace(incarnation="born")
            case "version":
                seen.session = Counters(8, 0, 0, 0, 0, 2, "active")
            case "epoch":
                seen.session = Counters(8, 0, 0, 0, 0, 3, "active")
            case "new epoch":
                commit = msgspec.structs.replace(commit, new_epoch=4)
            case "staged":
                seen.staged = frozenset({("call", "call", "token")})
            case "cells":
                commit = Commit(session_id=SESSION, now=1, run=commit.run, restore_number=3)
            case "run":
                seen.run_is_taken = False
            case _:
                seen.session = Counters(8, 0, 3, 0, 0, 3, "active")
    assert told == ["missing", "missing", "version", "epoch", "epoch", "staged", "cells", "run", "checkpoint"]
    assert isinstance(decide(commit, seen), Plan)


def test_a_session_that_exists_is_not_created_again() -> None:
    seen = Seen()
    seen.session = Counters(1, 0, 0, 0, 0, 0, "active")
    outcome = decide(Commit(session_id=SESSION, now=1, create=True, state=plain_state(SESSION)), seen)
    assert isinstance(outcome, CommitRefused)
    assert outcome.reason == "exists"


def test_counters_move_by_what_the_commit_brings() -> None:
    seen = Seen()
    seen.session, seen.identity = Counters(8, 5, 2, 3, 1, 4, "active"), IDENTITY
    commit = Commit(
        session_id=SESSION,
        now=1,
        bump_version=True,
        keep_messages=4,
        messages=("a", "b"),
        add_steps=1,
        add_resumes=2,
        new_epoch=6,
        status="paused",
        checkpoint=CHECKPOINT,
    )
    plan = decide(commit, seen)
    assert isinstance(plan, Plan)
    assert plan.after == Counters(9, 6, 3, 4, 3, 6, "paused")
    assert (plan.first_message, plan.cut, plan.recount, plan.removed) == (4, True, True, 1)


def test_a_commit_that_changes_nothing_of_custom_state_needs_to_see_nothing_of_it() -> None:
    wanted = needs(Commit(session_id=SESSION, now=1, messages=("a",)))
    assert [*wanted.cells, *wanted.keys, *wanted.lists] == []
    assert wanted[4:] == (None, False, False)
