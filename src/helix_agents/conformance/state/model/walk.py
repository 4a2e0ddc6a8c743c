"""Random walks: the same random operations on a store and on the model, results and all data compared after each.

Everything follows from the seed. A failure names it, the number of the step and the last operations, so that
`HELIX_SEED=... helix conformance module:harness --only random` repeats it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ....errors import HelixError
from ....stores.state.contract import StateStore
from ....types import BranchPoint
from ...expect import expect, expect_same, plain
from ...tools.dump import dump, dump_session
from .choices import Call, Choices
from .store import ModelStore

_CLOCK_FIELDS = frozenset({"updated_at", "set_at", "staged_at"})
_ANSWER_WARNINGS = frozenset({"merge_custom_state", "promote_staging"})
_HAVE_WARNINGS = _ANSWER_WARNINGS | {"save_state_and_promote_staging"}
_MAKE_CHECKPOINTS = frozenset({"save_state_and_promote_staging", "branch_session"})
_COMPARE_ALL_EVERY = 25
_HISTORY_SHOWN = 12


class Walk:
    """A store, the model, and the ids that the walk maps between them."""

    def __init__(self, store: StateStore, seed: int) -> None:
        self.store = store
        self.model = ModelStore()
        self.choose = Choices(random.Random(seed), self.model)
        self.history: list[str] = []
        # The model's and the store's ids of checkpoints and branches, in the order of creation.
        self.theirs: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    async def step(self, number: int) -> None:
        """Do one random thing to both sides and compare."""
        call = self.choose.call()
        self.history.append(str(call))
        expected_kind, expected, got_kind, got = await self._do(call)
        expect_same(got_kind, expected_kind, "the outcome of the call")
        _compare_warnings(call.method, got, expected)
        if call.method == "list_claimable" and got_kind == "answer":
            # The order follows the clock, which the model does not know.
            got, expected = (sorted(each, key=lambda it: it.session_id) for each in (got, expected))
        if call.method not in _ANSWER_WARNINGS:
            expect_same(self._comparable(got), self._comparable(expected), "the returned value")
        for name in call.touches:
            expect_same(await self._view(self.store, name), await self._view(self.model, name), f"session {name!r}")
        if number % _COMPARE_ALL_EVERY == 0:
            await self.compare_all()

    async def compare_all(self) -> None:
        """Compare every session of both sides."""
        ours, theirs = await dump(self.model), await dump(self.store)
        expect_same(self._comparable(theirs), self._comparable(ours), "all data")

    async def _do(self, call: Call) -> tuple[str, Any, str, Any]:
        got_kind, got = await _outcome(getattr(self.store, call.method), self._translated(call))
        if call.method in ("create_session", "fork_session") and got_kind == "answer":
            self.model.now = got.created_at  # Both sides must order sessions alike.
            self.model.incarnation = got.incarnation
        expected_kind, expected = await _outcome(getattr(self.model, call.method), call)
        if call.method in _MAKE_CHECKPOINTS and got_kind == expected_kind == "answer":
            self._pair(expected.checkpoint_id, got.checkpoint_id)
        if call.method == "branch_session" and got_kind == expected_kind == "answer":
            named = {self.theirs.get(it.branch_id, it.branch_id) for it in await self.model.list_branches(call.args[0])}
            for made in await self.store.list_branches(call.args[0]):
                if made.branch_id not in named:  # the store chose the id of the branch that was left
                    self._pair(f"left of {call.args[1].branch_id}", made.branch_id)
        return expected_kind, expected, got_kind, got

    def _pair(self, ours: str, theirs: str) -> None:
        self.theirs[ours] = theirs
        number = len(self.theirs)
        self.numbers |= {ours: number, theirs: number}

    def _translated(self, call: Call) -> Call:
        args = tuple(map(self._translated_argument, call.args))
        kwargs = {name: self.theirs.get(v, v) if isinstance(v, str) else v for name, v in call.kwargs.items()}
        return Call(call.method, copy.deepcopy(args), copy.deepcopy(kwargs))

    def _translated_argument(self, arg: Any) -> Any:
        if isinstance(arg, BranchPoint):
            return msgspec.structs.replace(arg, checkpoint_id=self.theirs.get(arg.checkpoint_id, arg.checkpoint_id))
        return self.theirs.get(arg, arg) if isinstance(arg, str) else arg

    async def _view(self, store: StateStore, name: str) -> Any:
        return self._comparable(await dump_session(store, name))

    def _comparable(self, value: Any) -> Any:
        """Return the value without times, wordings and cursors, with checkpoints and branches numbered."""
        value = plain(value)
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if key not in _CLOCK_FIELDS}
            if "turn" in kept:
                kept.pop("started_at")  # Set by the clock; the caller sets that of a ref.
            if "checkpoint_id" in kept or "branch_id" in kept:
                kept.pop("created_at", None)
            if "new_version" in kept:
                kept.pop("warnings", None)
            kept.pop("next_cursor", None)
            return {self._comparable(key): self._comparable(item) for key, item in kept.items()}
        if isinstance(value, list):
            return [self._comparable(item) for item in value]
        if isinstance(value, str) and value in self.numbers:
            return f"number {self.numbers[value]}"
        return value


def _compare_warnings(method: str, got: Any, expected: Any) -> None:
    """Compare whether there are warnings; their wording may differ."""
    if expected is None or method not in _HAVE_WARNINGS:
        return
    ours, theirs = getattr(expected, "warnings", expected), getattr(got, "warnings", got)
    if ours == ["lost"]:
        expect(theirs, "a write was lost without a warning")
    elif ours == []:
        expect_same(theirs, [], "warnings")


async def _outcome(method: Callable[..., Awaitable[Any]], call: Call) -> tuple[str, Any]:
    try:
        return "answer", await method(*call.args, **call.kwargs)
    except HelixError as error:
        return type(error).__name__, None


async def random_walk(store: StateStore, seed: int, steps: int) -> None:
    """Run a walk; fail with the seed and the last operations."""
    walk = Walk(store, seed)
    for number in range(1, steps + 1):
        try:
            await walk.step(number)
        except Exception as error:
            told = "\n  ".join(walk.history[-_HISTORY_SHOWN:])
            raise AssertionError(f"seed {seed}, step {number}: {error}\nthe last operations:\n  {told}") from error
    await walk.compare_all()
