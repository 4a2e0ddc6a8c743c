"""The data of the in-memory state store: one object per session, custom state in cells with an undo log.

What happened since a checkpoint can be taken back: every change of a cell first notes how to undo it, under the number
of checkpoints there were then. So a checkpoint costs nothing by itself, and any of them can be read back by undoing, on
a copy, what came after it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from ...codec import encode
from ...stores.state.commit import LIST, OBJECT, CellName, CustomChanges, KeyContent, StagedRow, StoredCheckpoint
from ...types import InterruptFlag, RunRecord, SessionState, SubSessionRef

Holder = str | list[str] | dict[str, str]
"""What is under a top-level key: its text, or the texts of its items or members."""

Undo = Callable[[dict[str, Holder]], None]


class CustomCells:
    """Custom state of one session, and how it came about."""

    def __init__(self) -> None:
        self.holders: dict[str, Holder] = {}
        self.undo: dict[int, list[Undo]] = {}

    def text(self, name: CellName) -> str | None:
        """What one cell holds."""
        holder = self.holders.get(name.key)
        if name.slot is None or holder is None:
            return LIST if isinstance(holder, list) else OBJECT if isinstance(holder, dict) else holder
        if isinstance(holder, dict) and isinstance(name.slot, str):
            return holder.get(name.slot)
        if isinstance(holder, list) and isinstance(name.slot, int) and 0 <= name.slot < len(holder):
            return holder[name.slot]
        return None

    def apply(self, changes: CustomChanges, number: int) -> None:
        """Make the changes, after the checkpoint of that number."""
        log = self.undo.setdefault(number, [])
        dropped = [key for key in self.holders if key not in changes.set_keys] if changes.replace_all else []
        for key in (*dropped, *changes.drop_keys):
            if key in self.holders:
                log.append(_put_back(key, self.holders.pop(key)))
        for key, content in changes.set_keys.items():
            new = _holder(content)
            old = self.holders.get(key)
            if new != old:
                log.append(_put_back(key, old))
                self.holders[key] = new
        for name, text in changes.set_cells.items():
            self._set_cell(name, text, log)
        for name in changes.drop_cells:
            members = self.holders[name.key]
            assert isinstance(members, dict)
            assert isinstance(name.slot, str)
            log.append(_put_back_member(name.key, name.slot, members.pop(name.slot, None)))
        for key, texts in changes.append.items():
            items = self.holders[key]
            assert isinstance(items, list)
            log.append(_cut(key, len(items)))
            items.extend(texts)

    def _set_cell(self, name: CellName, text: str, log: list[Undo]) -> None:
        holder = self.holders[name.key]
        if isinstance(holder, dict) and isinstance(name.slot, str):
            log.append(_put_back_member(name.key, name.slot, holder.get(name.slot)))
            holder[name.slot] = text
        elif isinstance(holder, list) and isinstance(name.slot, int):
            log.append(_put_back_item(name.key, name.slot, holder[name.slot]))
            holder[name.slot] = text

    def at(self, number: int) -> CustomCells:
        """A copy as of that checkpoint, without history."""
        past = CustomCells()
        past.holders = {
            key: holder if isinstance(holder, str) else holder.copy() for key, holder in self.holders.items()
        }
        for later in reversed(self.undo):  # numbers only go up, so the newest are last
            if later < number:
                break
            for undo in reversed(self.undo[later]):
                undo(past.holders)
        return past

    def restore(self, number: int) -> None:
        """Go back to that checkpoint for good."""
        self.holders = self.at(number).holders
        self.undo = {earlier: log for earlier, log in self.undo.items() if earlier < number}

    def all(self) -> Iterator[tuple[str, str, Iterable[str]]]:
        """Every key with its text and what is below it, as `rebuild` takes it."""
        for key, holder in self.holders.items():
            if isinstance(holder, str):
                yield encode(key), holder, ()
            elif isinstance(holder, list):
                yield encode(key), LIST, holder
            else:
                yield encode(key), OBJECT, [f"{encode(name)}:{text}" for name, text in holder.items()]


def _holder(content: KeyContent) -> Holder:
    if content.text == LIST:
        return list(content.items)
    if content.text == OBJECT:
        return dict(content.members)
    return content.text


def _put_back(key: str, old: Holder | None) -> Undo:
    # The old holder is out of use and never changes again; a copy of it is what comes back.
    def undo(holders: dict[str, Holder]) -> None:
        if old is None:
            holders.pop(key, None)
        else:
            holders[key] = old if isinstance(old, str) else old.copy()

    return undo


def _put_back_member(key: str, member: str, old: str | None) -> Undo:
    def undo(holders: dict[str, Holder]) -> None:
        holder = holders[key]
        assert isinstance(holder, dict)
        if old is None:
            holder.pop(member, None)
        else:
            holder[member] = old

    return undo


def _put_back_item(key: str, index: int, old: str) -> Undo:
    def undo(holders: dict[str, Holder]) -> None:
        holder = holders[key]
        assert isinstance(holder, list)
        holder[index] = old

    return undo


def _cut(key: str, length: int) -> Undo:
    def undo(holders: dict[str, Holder]) -> None:
        holder = holders[key]
        assert isinstance(holder, list)
        del holder[length:]

    return undo


class Session:
    """One session and all that belongs to it."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.messages: list[str] = []
        self.custom = CustomCells()
        self.staged: dict[str, dict[str, StagedRow]] = {}
        self.checkpoints: list[StoredCheckpoint] = []
        self.runs: list[RunRecord] = []
        self.refs: dict[str, SubSessionRef] = {}
        self.flag: InterruptFlag | None = None


class Sessions:
    """All sessions of an in-memory store. Give the same object to several stores to have them share data."""

    def __init__(self) -> None:
        self.by_id: dict[str, Session] = {}
        self.run_owner: dict[str, str] = {}
        self._by_age: list[tuple[int, str]] = []

    def add(self, session: Session) -> None:
        """Take in a new session."""
        self.by_id[session.state.session_id] = session
        insort(self._by_age, (session.state.created_at, session.state.session_id))

    def remove(self, session_id: str) -> None:
        """Drop a session and its runs."""
        session = self.by_id.pop(session_id)
        for run in session.runs:
            del self.run_owner[run.run_id]
        place = (session.state.created_at, session_id)
        del self._by_age[bisect_left(self._by_age, place)]

    def newest_first(self, after: tuple[int, str] | None) -> Iterator[Session]:
        """Sessions from the newest on, or from behind `after`."""
        start = len(self._by_age) if after is None else bisect_left(self._by_age, after)
        for index in range(start - 1, -1, -1):
            yield self.by_id[self._by_age[index][1]]
