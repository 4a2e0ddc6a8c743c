"""The step commit on SQLite: the shortcut for the write that every step of every agent makes.

The general way (`sql/commit_sql.py`) is a batch that carries its conditions in SQL, because most technologies cannot
look before they write. Here the writer has the database to itself for the length of a transaction: it reads the rows
that matter, judges them in Python and writes with bound values, at about half the cost. The effect is exactly that of
the general way, which the same conformance kit checks under D1's limits.
"""

from __future__ import annotations

import sqlite3

from ...codec import escape_text
from ...stores.commit import LIST, Applied, CellName, Commit, CustomChanges
from ..sql import rows
from ..sql.driver import GuardTripped, Row
from ..sql.queries import Queries


class StepCommit:
    """The statements, for tables with one prefix. `run` is called on the driver's thread, inside a transaction."""

    def __init__(self, prefix: str) -> None:
        self._texts = Queries("step_commit", "sqlite", prefix, package=__package__).texts

    def run(self, connection: sqlite3.Connection, commit: Commit) -> Applied:
        """Make a commit that `is_step_commit` visible; `GuardTripped` before anything is written."""
        texts, session_id, now = self._texts, commit.session_id, commit.now
        state, checkpoint, promote, custom = commit.state, commit.checkpoint, commit.promote, commit.custom
        assert state is not None
        assert checkpoint is not None
        execute = connection.execute
        step_id = promote and promote.step_id
        found = execute(texts["session"], (session_id, step_id)).fetchall()
        if not found:
            raise GuardTripped("missing")
        place, version, message_count, number = found[0][2:6]
        if commit.expected_version is not None and commit.expected_version != version:
            raise GuardTripped("version")
        if promote is not None:
            staged = {row[:2] for row in found if row[0] is not None}
            if staged != {*promote.rows}:
                raise GuardTripped("staged")
        if custom.expected or not custom.is_empty:
            self._change_cells(connection, session_id, custom, number)

        if promote is not None and promote.rows:
            execute(texts["unstage"], (session_id, step_id))
        messages = [
            (session_id, sequence, text, now) for sequence, text in enumerate(commit.messages, start=message_count)
        ]
        connection.executemany(texts["insert_message"], messages)
        version, message_count, number = version + 1, message_count + len(messages), number + 1
        execute(texts["update"], (place, now, version, message_count, number, *rows.content_columns(state)))
        labels = rows.label_columns(state)
        if labels != found[0][6:]:
            execute(texts["relabel"], (place, *labels))
        *about, fields = checkpoint
        seen = (message_count, state.status, version)
        execute(texts["insert_checkpoint"], (session_id, number, *about, *seen, fields, now))
        return Applied(version, message_count, state.step_count, state.resume_count)

    def _change_cells(
        self, connection: sqlite3.Connection, session_id: str, changes: CustomChanges, number: int
    ) -> None:
        """`number`: of the last checkpoint, which has seen all cells born before it and must go on seeing them."""
        execute, texts = connection.execute, self._texts
        wanted, append = changes.set_cells, changes.append
        if changes.set_keys:
            wanted = wanted | {CellName(key): content.text for key, content in changes.set_keys.items()}
        cells: dict[CellName, tuple[tuple[str, str, str], Row]] = {}
        ends = {key: _end(execute(texts["tail"], (session_id, escape_text(key))).fetchone()) for key in append}
        for name in (*changes.expected, *wanted):
            key, slot = name
            if name not in cells and (slot is not None or key not in ends):
                columns = (session_id, escape_text(key), rows.slot_text(slot))
                cells[name] = columns, execute(texts["cell"], columns).fetchone() or _NO_CELL
        for name, text in changes.expected.items():
            seen = cells[name][1][1] if name in cells else ends[name[0]][1]
            if seen != text:
                raise GuardTripped("cells")

        for name, text in wanted.items():
            columns, (place, old, born) = cells[name]
            if place is None:
                execute(texts["insert_cell"], (*columns, text, number, None))
            elif old != text:
                if born < number:
                    execute(texts["insert_cell"], (*columns, old, born, number))
                execute(texts["change_cell"], (place, text, number))
        for key, items in append.items():
            for index, text in enumerate(items, start=ends[key][0]):
                columns = (session_id, escape_text(key), rows.slot_text(index))
                execute(texts["insert_cell"], (*columns, text, number, None))


_NO_CELL: Row = (None, None, None)


def _end(found: tuple[str, str] | None) -> tuple[int, str | None]:
    """The place behind the last item of a list, and what the key's own cell says: only lists have items."""
    if found is None:
        return 0, None
    slot, text = found
    return (int(slot[1:]) + 1, LIST) if slot else (0, text)
