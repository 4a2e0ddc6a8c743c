"""StateTracker: the state that one tool call sees and changes, and the record of what it changed.

The record is read through two cursors, one for persistence (`get_step_writes`) and one for the wire (`drain_patches`).
Writes are staged in the store; patches of parallel tools go through `sequencer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from inspect import iscoroutine
from typing import Any

from ..errors import InvalidArgument
from .derive import derive
from .dict_draft import DictDraft
from .draft import Scope
from .freeze import freeze
from .frozen import FrozenDict
from .list_draft import ListDraft  # noqa: F401  # importing it teaches drafts how to wrap lists
from .marks import DictMarks, cloned, compose
from .writes import JsonPatch, Op, StepWrites, step_writes_to_rfc6902


class _Cursor:
    """The marks of all changes since `base`."""

    __slots__ = ("base", "marks")

    def __init__(self, base: FrozenDict) -> None:
        self.base = base
        self.marks: DictMarks | None = None

    def add(self, marks: DictMarks) -> None:
        if self.marks is None:
            self.marks = marks
        else:
            compose(self.marks, marks, self.base)


class StateTracker:
    """Holds an immutable state and records how updates change it.

    With `array_delta_mode=False` every change inside a list is recorded as a replacement of the outermost list.
    """

    __slots__ = ("_array_delta_mode", "_state", "_step", "_updating", "_wire")

    def __init__(self, initial_state: dict[str, Any], *, array_delta_mode: bool = True) -> None:
        state = freeze(initial_state)
        if state.__class__ is not FrozenDict:
            raise InvalidArgument(f"The state of a session must be a dict, not {type(initial_state).__name__}.")
        self._state: FrozenDict = state
        self._array_delta_mode = array_delta_mode
        self._updating = False
        # Until the first drain both cursors are equal and are the same object.
        self._step = self._wire = _Cursor(state)

    @property
    def state(self) -> FrozenDict:
        """The current state, as an immutable dict."""
        return self._state

    def update(self, fn: Callable[[Any], object]) -> FrozenDict:
        """Let `fn` change a draft of the state as if it were plain dicts and lists; return the new state.

        Its return value is ignored. If it raises, or leaves a value that is not JSON, nothing has changed.
        """
        if self._updating:
            raise InvalidArgument("update() was called inside update() on the same tracker: change the draft instead.")
        scope = Scope()
        root = DictDraft(self._state, None, scope)
        self._updating = True
        try:
            answer = fn(root)
            if answer is not None and iscoroutine(answer):
                answer.close()
                raise InvalidArgument("update() takes a plain function, not an async one: await first, then update.")
            state, marks = root._finish([])
        finally:
            self._updating = False
            scope.close()
        if marks is not None:
            self._record(marks)
            self._state = state
        return self._state

    def _record(self, marks: DictMarks) -> None:
        if self._wire is not self._step:
            self._wire.add(cloned(marks))
        self._step.add(marks)

    def get_step_writes(self, keys: Collection[str] | None = None) -> StepWrites:
        """Return the writes since the last reset, coalesced; with `keys`, only those under these keys of the state."""
        return StepWrites(self._ops(self._step, keys))

    def get_rfc6902_patches(self) -> JsonPatch:
        """Return the same writes as a JSON Patch."""
        return step_writes_to_rfc6902(self._ops(self._step))

    def drain_patches(self) -> JsonPatch:
        """Return the JSON Patch of changes since the last drain or reset. Does not affect `get_step_writes`."""
        return step_writes_to_rfc6902(self.drain_ops())

    def drain_ops(self) -> list[Op]:
        """Return the same changes as writes."""
        ops = self._ops(self._wire)
        self._wire = _Cursor(self._state)
        return ops

    def reset_tracking(self) -> None:
        """Discard the record of both cursors; the state stays."""
        self._step = self._wire = _Cursor(self._state)

    def _ops(self, cursor: _Cursor, keys: Collection[str] | None = None) -> list[Op]:
        marks = cursor.marks
        if marks and keys is not None:
            marks = {key: marks[key] for key in keys if key in marks}
        if not marks:
            return []
        return derive(cursor.base, self._state, marks, array_delta_mode=self._array_delta_mode)
