"""A `Commit` as one batch of statements: guards first, then the session row, then everything that hangs on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ...codec import encode, escape_text, unescape_text
from ...stores.commit import LIST, OBJECT, Applied, CellName, Commit, CustomChanges
from . import rows
from .driver import Row, Statement
from .queries import Queries

Entry = TypeVar("Entry")

COUNTERS = frozenset({"insert_session", "update_session", "touch_session"})
"""The statements whose row tells version, message count, step count and resume count."""


class CommitBatch:
    """The statements of one commit, and what their rows mean."""

    def __init__(self, queries: Queries, commit: Commit, want: Iterable[CellName], max_parameter_bytes: int) -> None:
        self._queries = queries
        self._limit = max_parameter_bytes
        self._names: list[str] = []
        self.statements: list[Statement] = []
        self._want = list(want)
        self._add_guards(commit)
        self._add_session(commit)
        self._add_messages(commit)
        self._add_history(commit)
        self._add_custom(commit.session_id, commit.custom, int(commit.checkpoint is not None))
        self._add_staging(commit)
        self._add_checkpoint(commit)
        self._add_company(commit)
        if self._want:
            self._add("read_cells", commit.session_id, cell_names_text(self._want))

    def applied(self, results: list[list[Row]]) -> tuple[Applied, dict[CellName, str | None]]:
        """What the batch's rows say."""
        counters: Row = ()
        removed = turn = 0
        cells: dict[CellName, str | None] = dict.fromkeys(self._want)
        for name, found in zip(self._names, results, strict=True):
            if name in COUNTERS:
                counters = found[0]
            elif name in ("discard_step", "discard_all"):
                removed += len(found)
            elif name == "count_cut_messages":
                removed += found[0][0]
            elif name == "insert_run":
                turn = found[0][0]
            elif name == "read_cells":
                cells |= {cell_name(key, slot): text for key, slot, text in found}
        version, message_count, step_count, resume_count = counters
        return Applied(version, message_count, step_count, resume_count, removed, turn), cells

    # -- building

    def _add(self, name: str, *params: str | int | float | bytes | None) -> None:
        self._names.append(name)
        self.statements.append(self._queries(name, *params))

    def _add_guards(self, commit: Commit) -> None:
        if commit.create:
            return  # the primary key is the guard
        self._add("guard_session", commit.session_id, commit.expected_version)
        if commit.promote is not None:
            rows_text = encode([list(row) for row in commit.promote.rows])
            self._add("guard_staged", commit.session_id, commit.promote.step_id, rows_text)
        if commit.custom.expected:
            expected = [
                [escape_text(name.key), rows.slot_text(name.slot), text]
                for name, text in commit.custom.expected.items()
            ]
            for part in self._parts(expected):
                self._add("guard_cells", commit.session_id, part)
        if commit.restore_number is not None:
            self._add("guard_checkpoint", commit.session_id, commit.restore_number)

    def _add_session(self, commit: Commit) -> None:
        state = commit.state
        if commit.create:
            assert state is not None
            labels, content = rows.label_columns(state), rows.content_columns(state)
            self._add("insert_session", commit.session_id, *labels, *content, commit.now)
            return
        if commit.keep_messages is not None:
            self._add("count_cut_messages", commit.session_id, commit.keep_messages)
            self._add("cut_messages", commit.session_id, commit.keep_messages)
            self._add("recount_messages", commit.session_id, commit.keep_messages)
        bump, count = int(commit.bump_version), len(commit.messages)
        if state is not None:
            more = int(commit.checkpoint is not None)
            content = rows.content_columns(state)
            self._add("update_session", commit.session_id, commit.now, bump, count, more, *content)
            self._add("relabel_session", commit.session_id, *rows.label_columns(state))
        else:
            counters = (bump, count, commit.add_steps, commit.add_resumes)
            self._add("touch_session", commit.session_id, commit.now, *counters)
        if commit.status is not None:
            self._add("set_status", commit.session_id, commit.status)

    def _add_messages(self, commit: Commit) -> None:
        left = len(commit.messages)
        for part, count in self._text_parts(commit.messages):
            self._add("insert_messages", commit.session_id, part, left, commit.now)
            left -= count

    def _add_history(self, commit: Commit) -> None:
        if commit.restore_number is None:
            return
        for name in ("rewind_new_cells", "rewind_old_cells", "rewind_checkpoints", "rewind_session"):
            self._add(name, commit.session_id, commit.restore_number)

    def _add_custom(self, session_id: str, changes: CustomChanges, made: int) -> None:
        if changes.is_empty:
            return
        cells = [*_key_cells(changes)]
        closing = bool(changes.replace_all or changes.set_keys or changes.drop_keys)
        if closing:
            wanted = encode(cells)
            # Too long for one parameter: end every cell of those keys and begin them anew.
            wanted = wanted if len(wanted) <= self._limit else "[]"
            if changes.replace_all:
                self._add("close_all", session_id, wanted, made)
            else:
                keys = encode([escape_text(key) for key in (*changes.set_keys, *changes.drop_keys)])
                self._add("close_keys", session_id, keys, wanted, made)
        if changes.set_cells or changes.drop_cells:
            self._add("close_cells", session_id, cell_names_text([*changes.set_cells, *changes.drop_cells]), made)
        if closing or changes.set_cells or changes.drop_cells:
            self._add("sweep_cells", session_id, made)
        cells += [[escape_text(key), rows.slot_text(slot), text] for (key, slot), text in changes.set_cells.items()]
        for part in self._parts(cells):
            self._add("put_cells", session_id, part, made)
        for key, texts in changes.append.items():
            for part, _ in self._text_parts(texts):
                self._add("append_items", session_id, escape_text(key), part, made)

    def _add_staging(self, commit: Commit) -> None:
        if commit.promote is not None and commit.promote.rows:
            self._add("discard_step", commit.session_id, commit.promote.step_id)
        if commit.discard_all:
            self._add("discard_all", commit.session_id)
        elif commit.discard_step is not None:
            self._add("discard_step", commit.session_id, commit.discard_step)
        if commit.stage is not None:
            step_id, row = commit.stage
            self._add("stage", commit.session_id, step_id, *row)

    def _add_checkpoint(self, commit: Commit) -> None:
        row = commit.checkpoint
        if row is not None:
            self._add("insert_checkpoint", commit.session_id, *row, commit.now)

    def _add_company(self, commit: Commit) -> None:
        if commit.run is not None:
            self._add("insert_run", commit.session_id, commit.run.run_id, *rows.run_columns(commit.run))
        for ref in commit.refs:
            self._add("put_ref", commit.session_id, *rows.ref_columns(ref))
        if commit.clear_flag:
            self._add("clear_flag", commit.session_id)
        if commit.flag is not None:
            self._add("set_flag", commit.session_id, *rows.flag_columns(commit.flag))

    # -- long lists over several parameters

    def _parts(self, entries: list[list[str | None]]) -> Iterator[str]:
        for part in _split(entries, [sum(len(text or "") + 8 for text in entry) for entry in entries], self._limit):
            yield encode(part)

    def _text_parts(self, texts: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        for part in _split(list(texts), [len(text) + 8 for text in texts], self._limit):
            yield encode(part), len(part)


def _key_cells(changes: CustomChanges) -> Iterator[list[str | None]]:
    for key, content in changes.set_keys.items():
        name = escape_text(key)
        yield [name, "", content.text]
        if content.text == LIST:
            for index, text in enumerate(content.items):
                yield [name, rows.slot_text(index), text]
        elif content.text == OBJECT:
            for member, text in content.members:
                yield [name, rows.slot_text(member), text]


def _split(entries: list[Entry], sizes: list[int], limit: int) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    size = 0
    for entry, entry_size in zip(entries, sizes, strict=True):
        # Quotes and other escapes may double a text, hence half the limit.
        if part and size + entry_size > limit // 2:
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry_size
    if part:
        yield part


def cell_names_text(names: Iterable[CellName]) -> str:
    """Cells by name, as `read_cells` and `close_cells` take them."""
    return encode([[escape_text(name.key), rows.slot_text(name.slot)] for name in names])


def cell_name(key: str, slot: str) -> CellName:
    """The name of a cell from its columns."""
    return CellName(unescape_text(key), rows.slot_of(slot))
