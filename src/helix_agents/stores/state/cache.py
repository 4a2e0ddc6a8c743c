"""Caches of a store object's own writes, so that a commit need not read them back.

Cached values are not trusted: they become guards of the next commit, which the backend rejects if they are stale. Both
caches are bounded; a miss costs one read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...codec import decode
from ...state import StepWrites
from ...types import StagedKind
from .cells import PreparedWrites, combine, prepare
from .commit import CellName, CellTexts, CustomChanges, Slot, StagedRow, StagedStep

MAX_STEPS = 4096
MAX_SESSIONS = 4096
MAX_CELL_TEXT = 64 * 1024
MAX_TEXT_TOTAL = 32 * 1024 * 1024


class StagedCall(NamedTuple):
    """A staged row prepared for the commit: the data for the merge, and the token that identifies the row."""

    position: int
    kind: StagedKind
    tool_call_id: str
    token: str
    prepared: PreparedWrites


class PreparedStep(NamedTuple):
    """The prepared staged calls of a step: the guard that there are no others, and their writes."""

    guard: StagedStep
    prepared: PreparedWrites


def staged_call(row: StagedRow) -> StagedCall:
    """Return a staged row as a call. Its writes are decoded again, so that no other code can change them."""
    return StagedCall(row.position, row.kind, row.tool_call_id, row.token, prepare(writes_of(row)))


def writes_of(row: StagedRow) -> StepWrites:
    """Return what the call wrote."""
    ops, warnings = decode(row.writes)
    return StepWrites(ops, warnings)


def prepare_step(step_id: str, calls: Iterable[StagedCall], unstaged: Sequence[StagedCall] = ()) -> PreparedStep:
    """Combine staged calls with those that come with the commit, in the order of the model's message."""
    ordered = sorted(calls, key=_place)
    guard = StagedStep(step_id, tuple([call[1:4] for call in ordered]))
    if unstaged:
        ordered = sorted([*ordered, *unstaged], key=_place)
    return PreparedStep(guard, combine([call.prepared for call in ordered]))


def _place(call: StagedCall) -> tuple[int, str, str]:
    return call[:3]


class StagingCache:
    """The calls whose rows this store object staged, by session and step."""

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[str, str], dict[tuple[str, str], StagedCall]] = OrderedDict()
        self._ready: dict[tuple[str, str], PreparedStep] = {}

    def put(self, session_id: str, step_id: str, call: StagedCall) -> None:
        """Remember a call whose row was stored."""
        step = (session_id, step_id)
        calls = self._calls.setdefault(step, {})
        calls[call.kind, call.tool_call_id] = call
        self._calls.move_to_end(step)
        if len(calls) == 1:  # usually it stays the only one, and the commit needs no further preparation
            self._ready[step] = prepare_step(step_id, [call])
        else:
            self._ready.pop(step, None)
        if len(self._calls) > MAX_STEPS:
            oldest, _ = self._calls.popitem(last=False)
            self._ready.pop(oldest, None)

    def get(self, session_id: str, step_id: str, unstaged: Sequence[StagedCall] = ()) -> PreparedStep:
        """Return the cached calls, prepared together with those that come with the commit."""
        step = (session_id, step_id)
        ready = self._ready.get(step)
        if ready is None or unstaged:
            return prepare_step(step_id, self._calls.get(step, {}).values(), unstaged)
        return ready

    def forget(self, session_id: str, step_id: str | None = None) -> None:
        """Drop a step, or all steps of a session."""
        if step_id is not None:
            self._calls.pop((session_id, step_id), None)
            self._ready.pop((session_id, step_id), None)
            return
        for name in [name for name in self._calls if name[0] == session_id]:
            del self._calls[name]
            self._ready.pop(name, None)


class _Session:
    """The cached cells of one session: the texts of keys, the texts of the cells under them, and their total size."""

    __slots__ = ("below", "keys", "size")

    def __init__(self) -> None:
        self.keys: dict[str, str | None] = {}
        self.below: dict[str, dict[Slot, str | None]] = {}
        self.size = 0

    def put(self, texts: dict[Any, str | None], place: Slot, text: str | None) -> None:
        """Cache a text, replacing an older one, unless it is too long."""
        if place in texts:
            self.size -= _size(texts.pop(place))
        if text is None or len(text) <= MAX_CELL_TEXT:
            texts[place] = text
            self.size += _size(text)

    def drop_below(self, key: str) -> None:
        """Forget everything under a key."""
        self.size -= sum(map(_size, self.below.pop(key, {}).values()))


class CellCache:
    """The texts of custom state cells as this store object last saw them, by session."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._total = 0

    def get(self, session_id: str, names: Iterable[CellName]) -> CellTexts:
        """Return those of `names` that are cached."""
        held = self._sessions.get(session_id)
        if held is None:
            return {}
        self._sessions.move_to_end(session_id)
        keys, below = held.keys, held.below
        found: CellTexts = {}
        for name in names:
            key, slot = name
            if slot is None:
                if key in keys:
                    found[name] = keys[key]
            elif key in below and slot in below[key]:
                found[name] = below[key][slot]
        return found

    def put(self, session_id: str, cells: CellTexts) -> None:
        """Cache the current texts of cells."""
        held = self._sessions.get(session_id) or _Session()
        before = held.size
        for (key, slot), text in cells.items():
            if slot is None:
                held.put(held.keys, key, text)
            else:
                held.put(held.below.setdefault(key, {}), slot, text)
        self._keep(session_id, held, before)

    def learn(self, session_id: str, changes: CustomChanges) -> None:
        """Cache the texts that follow from storing these changes, including the expected ones."""
        if changes.replace_all:
            self.forget(session_id)
        held = self._sessions.get(session_id) or _Session()
        before = held.size
        if held.below:
            for key in (*changes.set_keys, *changes.drop_keys, *changes.append):
                held.drop_below(key)
        for key, content in changes.set_keys.items():
            held.put(held.keys, key, content.text)
        for key in changes.drop_keys:
            held.put(held.keys, key, None)
        for (key, slot), text in changes.set_cells.items():
            held.put(held.below.setdefault(key, {}), slot, text)
        for key, slot in changes.drop_cells:
            held.put(held.below.setdefault(key, {}), slot, None)
        self._keep(session_id, held, before)

    def _keep(self, session_id: str, held: _Session, before: int) -> None:
        self._sessions[session_id] = held
        self._sessions.move_to_end(session_id)
        self._total += held.size - before
        while self._total > MAX_TEXT_TOTAL or len(self._sessions) > MAX_SESSIONS:
            self.forget(next(iter(self._sessions)))

    def forget(self, session_id: str) -> None:
        """Drop a session."""
        held = self._sessions.pop(session_id, None)
        if held is not None:
            self._total -= held.size


def _size(text: str | None) -> int:
    return 64 if text is None else 64 + len(text)
