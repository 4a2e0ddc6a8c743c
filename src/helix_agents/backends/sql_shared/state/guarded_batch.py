"""A `Commit` as one batch of statements that carry their own conditions: guards, the session row, then the rest.

This is D1's write path: it cannot read before it writes. What is overwritten goes to `__agents_past`, with a checkpoint
or without: a row of D1 holds 2 MB, and a checkpoint may overwrite more than that. Where a backend can read
first, `planned_commit.py` does the same with fewer statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ....codec import encode, escape_text, unescape_text
from ....stores.state.commit import LIST, OBJECT, Applied, CellName, Commit, Copy, CustomChanges, Identity, KeyContent
from ....stores.state.plan import is_one_cell
from ..driver import Row, Statement, Value
from ..queries import Queries
from . import rows
from .branch_statements import branch_statements

Entry = TypeVar("Entry")

REWIND = ("rewind_new_cells", "rewind_old_cells", "rewind_past", "rewind_checkpoints", "rewind_session")
"""The statements that return to a checkpoint, in order: newer cells must be removed before old ones are restored."""


class CommitBatch:
    """The statements of one commit, and the meaning of their rows."""

    def __init__(self, queries: Queries, commit: Commit, want: Iterable[CellName], max_parameter_bytes: int) -> None:
        self._queries, self._texts = queries, queries.texts
        self._limit = max_parameter_bytes
        self.statements: list[Statement] = []
        # Where the rows of interest will be.
        self._counters = 0
        self._removals: list[int] = []
        self._cut: int | None = None
        self._run: int | None = None
        self._want = list(want)
        self._add_guards(commit)
        self._add_session(commit)
        self._add_messages(commit)
        self._add_history(commit)
        self._add_custom(commit.session_id, commit.custom, int(commit.checkpoint is not None))
        self._add_staging(commit)
        self._add_checkpoint(commit)
        self._add_run_refs_and_flag(commit)
        if self._want:
            self._add("read_cells", commit.session_id, cell_names_text(self._want))

    def applied(self, results: list[list[Row]]) -> tuple[Applied, dict[CellName, str | None]]:
        """Return what the batch's rows say."""
        version, message_count, step_count, resume_count = results[self._counters][0]
        removed = sum(len(results[place]) for place in self._removals)
        if self._cut is not None:
            removed += results[self._cut][0][0]
        turn = 0 if self._run is None else results[self._run][0][0]
        cells: dict[CellName, str | None] = {}
        if self._want:
            cells = dict.fromkeys(self._want)
            cells |= {cell_name(key, slot): text for key, slot, text in results[-1]}
        return Applied(version, message_count, step_count, resume_count, removed, turn), cells

    # -- building

    def _add(self, name: str, *params: Value) -> int:
        self.statements.append(Statement(self._texts[name], params))
        return len(self.statements) - 1

    def _add_guards(self, commit: Commit) -> None:
        if commit.create:  # the primary key is the guard
            if (copy := commit.copy) is not None:
                self._add("guard_session", copy.session_id, copy.incarnation, copy.version, None, None)
                if copy.number is not None:
                    self._add("guard_checkpoint", copy.session_id, copy.number)
            return
        incarnation, epoch = rows.owner_columns(commit.owner)
        guards = (incarnation, commit.expected_version, epoch, commit.new_epoch)
        self._add("guard_session", commit.session_id, *guards)
        if commit.state is not None and commit.restore_number is None:
            self._add("guard_identity", commit.session_id, *Identity.of(commit.state))
        if commit.allowed_from:
            self._add("guard_status", commit.session_id, encode(commit.allowed_from))
        if commit.promote is not None:
            self._add("guard_staged", commit.session_id, commit.promote.step_id, encode(commit.promote.rows))
        if commit.custom.expected:
            for part in self._parts([_cell(name, text) for name, text in commit.custom.expected.items()]):
                self._add("guard_cells", commit.session_id, part)
        if commit.restore_number is not None:
            self._add("guard_checkpoint", commit.session_id, commit.restore_number)
        for move in commit.branches.moves[:1]:  # the others part in what the first one brings back
            self._add("guard_fork", commit.session_id, move.number, move.message_count)

    def _add_session(self, commit: Commit) -> None:
        state = commit.state
        if commit.create:
            assert state is not None
            labels, content = rows.label_columns(state, commit.due_at), rows.content_columns(state)
            columns = (*rows.identity_columns(state), *labels, *content, state.owner_epoch, rows.origin_column(state))
            self._counters = self._add("insert_session", commit.session_id, *columns, commit.now)
            if commit.copy is not None:
                self._add_copy(commit.session_id, commit.copy)
            if commit.messages or commit.checkpoint is not None:
                counts = (0, len(commit.messages), int(commit.checkpoint is not None))
                self._counters = self._add("update_session", commit.session_id, commit.now, *counts, *content, None)
            return
        self.statements += branch_statements(self._queries, commit.session_id, commit.branches)
        if commit.branches.moves:
            self._add("recount_session", commit.session_id)
        if commit.keep_messages is not None:
            self._cut = self._add("count_cut_messages", commit.session_id, commit.keep_messages)
            self._add("cut_messages", commit.session_id, commit.keep_messages)
            self._add("recount_messages", commit.session_id, commit.keep_messages)
            if commit.restore_number is None:  # else those that counted more go
                self._add("recount_checkpoints", commit.session_id, commit.keep_messages)
        bump, count = int(commit.bump_version), len(commit.messages)
        if state is not None:
            more = int(commit.checkpoint is not None)
            content = rows.content_columns(state)
            changes = (bump, count, more, *content, commit.new_epoch)
            self._counters = self._add("update_session", commit.session_id, commit.now, *changes)
            self._add("relabel_session", commit.session_id, *rows.label_columns(state, commit.due_at))
        else:
            counters = (bump, count, commit.add_steps, commit.add_resumes, commit.new_epoch)
            self._counters = self._add("touch_session", commit.session_id, commit.now, *counters)
        if commit.status is not None:
            self._add("set_status", commit.session_id, commit.status)

    def _add_copy(self, session_id: str, copy: Copy) -> None:
        self._add("fork_messages", session_id, copy.session_id, copy.message_count)
        if copy.number is None:
            self._add("fork_cells", session_id, copy.session_id)
        else:
            self._add("fork_cells_at", session_id, copy.session_id, copy.number)
        self._add("fork_recount", session_id)

    def _add_messages(self, commit: Commit) -> None:
        left = len(commit.messages)
        for part, count in self._text_parts(commit.messages):
            self._add("insert_messages", commit.session_id, part, left, commit.now)
            left -= count

    def _add_history(self, commit: Commit) -> None:
        if commit.restore_number is None:
            return
        for name in REWIND:
            self._add(name, commit.session_id, commit.restore_number)

    def _add_custom(self, session_id: str, changes: CustomChanges, made: int) -> None:
        if changes.is_empty:
            return
        cells = [_cell(name, text) for name, text in changes.set_cells.items()]
        whole = {key: content for key, content in changes.set_keys.items() if not is_one_cell(changes, key, content)}
        cells += [_cell(CellName(key), content.text) for key, content in changes.set_keys.items() if key not in whole]
        if changes.replace_all or whole or changes.drop_keys:
            self._add_keys(session_id, changes, whole, made)
        for part in self._parts(cells):
            self._add("keep_cells", session_id, part, made)
            self._add("put_cells", session_id, part, made)
        for part in self._parts([_cell(name, None) for name in changes.drop_cells]):
            self._add("keep_cells", session_id, part, made)
            self._add("drop_cells", session_id, part)
        for key, texts in changes.append.items():
            for part, _ in self._text_parts(texts):
                self._add("append_items", session_id, escape_text(key), part, made)

    def _add_keys(self, session_id: str, changes: CustomChanges, whole: dict[str, KeyContent], made: int) -> None:
        cells = [*key_cells(whole)]
        wanted = encode(cells)
        # Too long for one parameter: drop every cell of those keys and begin them again.
        wanted = wanted if len(wanted) <= self._limit else "[]"
        if changes.replace_all:
            self._add("keep_all", session_id, wanted, made)
            self._add("drop_all", session_id, wanted)
        else:
            keys = encode([escape_text(key) for key in (*whole, *changes.drop_keys)])
            self._add("keep_keys", session_id, keys, wanted, made)
            self._add("drop_keys", session_id, keys, wanted)
        for part in self._parts(cells):
            self._add("begin_cells", session_id, part, made)

    def _add_staging(self, commit: Commit) -> None:
        if commit.promote is not None and commit.promote.rows:
            self._add("unstage_step", commit.session_id, commit.promote.step_id)
        if commit.discard_all:
            self._removals.append(self._add("discard_all", commit.session_id))
        elif commit.discard_step is not None:
            self._removals.append(self._add("discard_step", commit.session_id, commit.discard_step))
        if commit.stage is not None:
            step_id, rows = commit.stage
            for row in rows:
                self._add("stage", commit.session_id, step_id, *row)

    def _add_checkpoint(self, commit: Commit) -> None:
        row = commit.checkpoint
        if row is not None:
            self._add("insert_checkpoint", commit.session_id, *row, commit.now)
            if commit.along is not None and (append := commit.along.append) is not None:
                place = (append.stream_id, commit.along.after)
                self._add("place_checkpoint", commit.session_id, row.checkpoint_id, *place)

    def _add_run_refs_and_flag(self, commit: Commit) -> None:
        if commit.run is not None:
            self._run = self._add("insert_run", commit.session_id, commit.run.run_id, *rows.run_columns(commit.run))
        if (change := commit.change_run) is not None:
            seen, changes = change.seen, rows.run_changes(change.changes, change.wanted)
            self._add("guard_lease", commit.session_id, seen.run_id, seen.status, seen.lease_until)
            self._add("update_run", seen.run_id, encode([seen.status]), *changes, None, None)
        for ref in commit.refs:
            self._add("put_ref", commit.session_id, *rows.ref_columns(ref))
        if commit.clear_flag:
            self._add("clear_flag", commit.session_id)
        if commit.flag is not None:
            self._add("set_flag", commit.session_id, *rows.flag_columns(commit.flag))

    # -- long lists over several parameters

    def _parts(self, entries: Sequence[Entry]) -> list[str]:
        return [text for text, _ in self._text_parts(entries)]

    def _text_parts(self, entries: Sequence[Entry]) -> list[tuple[str, int]]:
        """Split the entries into JSON texts that each fit one parameter; return them with their counts."""
        if not entries:
            return []
        text = encode(entries)
        if len(text) <= self._limit // 4 or len(entries) == 1:  # a character takes up to four bytes
            return [(text, len(entries))]
        middle = len(entries) // 2
        return [*self._text_parts(entries[:middle]), *self._text_parts(entries[middle:])]


def _cell(name: CellName, text: str | None) -> list[str | None]:
    return [escape_text(name.key), rows.slot_text(name.slot), text]


def key_cells(keys: dict[str, KeyContent]) -> Iterator[tuple[str, str, str]]:
    """Yield all cells of these keys: key and slot as their columns, and the text."""
    for name, content in keys.items():
        key = escape_text(name)
        yield key, rows.slot_text(None), content.text
        if content.text == LIST:
            for index, text in enumerate(content.items):
                yield key, rows.slot_text(index), text
        elif content.text == OBJECT:
            for member, text in content.members:
                yield key, rows.slot_text(member), text


def cell_names_text(names: Iterable[CellName]) -> str:
    """Return the names of cells in the form that `read_cells` takes."""
    return encode([[escape_text(name.key), rows.slot_text(name.slot)] for name in names])


def cell_name(key: str, slot: str) -> CellName:
    """Return the name of a cell from its columns."""
    return CellName(unescape_text(key), rows.slot_of(slot))
