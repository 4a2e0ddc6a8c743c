"""What one store object remembers of its own writes, so that a commit need not read them back first.

Nothing here is ever trusted: what is remembered becomes a guard of the next commit, and the backend refuses the commit
if it is no longer so. Both memories are bounded; forgetting costs one more read, nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from .commit import CellName, Slot, StagedRow

MAX_STEPS = 4096
MAX_SESSIONS = 4096
MAX_CELL_TEXT = 64 * 1024
MAX_TEXT_TOTAL = 32 * 1024 * 1024


class HeldStaging:
    """The staged rows that this store object wrote, by session and step."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str], dict[str, StagedRow]] = OrderedDict()

    def put(self, session_id: str, step_id: str, row: StagedRow) -> None:
        """Remember a row that was stored."""
        self._rows.setdefault((session_id, step_id), {})[row.tool_call_id] = row
        self._rows.move_to_end((session_id, step_id))
        if len(self._rows) > MAX_STEPS:
            self._rows.popitem(last=False)

    def get(self, session_id: str, step_id: str) -> list[StagedRow]:
        """The rows remembered, in the order of the tool calls."""
        return in_tool_order(self._rows.get((session_id, step_id), {}).values())

    def forget(self, session_id: str, step_id: str | None = None) -> None:
        """Drop a step, or all steps of a session."""
        if step_id is not None:
            self._rows.pop((session_id, step_id), None)
            return
        for name in [name for name in self._rows if name[0] == session_id]:
            del self._rows[name]


def in_tool_order(rows: Iterable[StagedRow]) -> list[StagedRow]:
    """Staged rows in the order of the calls in the model's message."""
    return sorted(rows, key=lambda row: (row.position, row.tool_call_id))


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
