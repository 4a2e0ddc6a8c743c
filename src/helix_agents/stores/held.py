"""What one store object remembers of its own writes, so that a commit need not read them back first.

Nothing here is ever trusted: what is remembered becomes a guard of the next commit, and the backend refuses the commit
if it is no longer so. Both memories are bounded; forgetting costs one more read, nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..codec import decode
from ..state import StepWrites
from .cells import touched_cells
from .commit import CellName, Slot, StagedRow

MAX_STEPS = 4096
MAX_SESSIONS = 4096
MAX_CELL_TEXT = 64 * 1024
MAX_TEXT_TOTAL = 32 * 1024 * 1024


class StagedCall(NamedTuple):
    """A staged row made ready for the commit: what the merge needs, and the token by which the row is recognised."""

    position: int
    tool_call_id: str
    token: str
    writes: StepWrites
    touched: frozenset[CellName]
    """The cells that must be known for the merge."""


def staged_call(row: StagedRow) -> StagedCall:
    """The call of a row. Its writes are decoded anew: nobody else has a hand on them."""
    writes = writes_of(row)
    return StagedCall(row.position, row.tool_call_id, row.token, writes, frozenset(touched_cells([writes])))


def writes_of(row: StagedRow) -> StepWrites:
    """What the call wrote."""
    ops, warnings = decode(row.writes)
    return StepWrites(ops, warnings)


def in_tool_order(calls: Iterable[StagedCall]) -> list[StagedCall]:
    """Staged calls in the order of the model's message."""
    return sorted(calls, key=_place)


def _place(call: StagedCall) -> tuple[int, str]:
    return call[:2]


class HeldStaging:
    """The calls whose rows this store object staged, by session and step."""

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[str, str], dict[str, StagedCall]] = OrderedDict()

    def put(self, session_id: str, step_id: str, call: StagedCall) -> None:
        """Remember a call whose row was stored."""
        self._calls.setdefault((session_id, step_id), {})[call.tool_call_id] = call
        self._calls.move_to_end((session_id, step_id))
        if len(self._calls) > MAX_STEPS:
            self._calls.popitem(last=False)

    def get(self, session_id: str, step_id: str) -> list[StagedCall]:
        """The calls remembered, in the order of the model's message."""
        calls = self._calls.get((session_id, step_id))
        return [] if calls is None else in_tool_order(calls.values())

    def forget(self, session_id: str, step_id: str | None = None) -> None:
        """Drop a step, or all steps of a session."""
        if step_id is not None:
            self._calls.pop((session_id, step_id), None)
            return
        for name in [name for name in self._calls if name[0] == session_id]:
            del self._calls[name]


class HeldCells:
    """The texts of custom state cells that this store object has seen last, by session."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, dict[str, dict[Slot, str | None]]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._total = 0

    def get(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None]:
        """Those of `names` that are remembered."""
        keys = self._sessions.get(session_id)
        if keys is None:
            return {}
        self._sessions.move_to_end(session_id)
        found: dict[CellName, str | None] = {}
        for name in names:
            slots = keys.get(name.key)
            if slots is not None and name.slot in slots:
                found[name] = slots[name.slot]
        return found

    def put(self, session_id: str, cells: Mapping[CellName, str | None], *, reset: Iterable[str] = ()) -> None:
        """Remember what the cells hold now; of the keys in `reset` nothing older is true any more."""
        keys = self._sessions.setdefault(session_id, {})
        self._sessions.move_to_end(session_id)
        grown = 0
        for key in reset:
            grown -= sum(map(_size, keys.pop(key, {}).values()))
        for (key, slot), text in cells.items():
            slots = keys.setdefault(key, {})
            if slot in slots:
                grown -= _size(slots.pop(slot))
            if text is None or len(text) <= MAX_CELL_TEXT:
                slots[slot] = text
                grown += _size(text)
        self._sizes[session_id] = self._sizes.get(session_id, 0) + grown
        self._total += grown
        while self._total > MAX_TEXT_TOTAL or len(self._sessions) > MAX_SESSIONS:
            self.forget(next(iter(self._sessions)))

    def forget(self, session_id: str) -> None:
        """Drop a session."""
        self._sessions.pop(session_id, None)
        self._total -= self._sizes.pop(session_id, 0)


def _size(text: str | None) -> int:
    return 64 if text is None else 64 + len(text)
