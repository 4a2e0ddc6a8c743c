"""Commits on a database that can be read inside a transaction: SQLite, and a Durable Object.

During a transaction, the writer has exclusive access. It reads what a commit needs, lets the planner decide
(`stores/state/plan.py`), and writes the plan with bound values. Commits of many sessions that share a transaction are
read together and written together, one table at a time. This module does not start or end transactions, and does not
know the library of the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from ....codec import encode, escape_text, unescape_text
from ....stores.state.commit import LIST, Applied, CellName, CellTexts, Commit, CommitRefused, Identity
from ....stores.state.plan import Cell, CellPlan, Counters, Needs, Plan, Seen, Source, decide, needs
from ..driver import Row, Statement
from ..queries import Queries
from . import rows
from .branch_statements import branch_statements, shelf_of
from .row_statements import RowConnection, RowStatements

Request = tuple[Commit, tuple[CellName, ...]]
"""A commit, and the cells whose contents the caller wants back."""

Answer = tuple[Applied, CellTexts]

SQLITE_PARAMETERS = 32_766
SQLITE_VALUE_BYTES = 500_000_000

_FIRST_SLOT, _LAST_SLOT = "", "/"
"""All slots are in between: '' a key itself, '#...' items, '.name' members."""
_REWIND = ("rewind_new_cells", "rewind_old_cells", "rewind_past", "rewind_checkpoints")
_PLAIN = [None] * 7
"""The content columns of a running session."""


class PlannedCommits:
    """Reads, plans and writes commits, for tables with one prefix. `run` is called inside a write transaction."""

    def __init__(
        self, prefix: str, *, max_parameters: int = SQLITE_PARAMETERS, max_value_bytes: int = SQLITE_VALUE_BYTES
    ) -> None:
        self._statements = RowStatements(Queries("state/planned_commit", "sqlite", prefix), max_parameters)
        self._queries = Queries("state/queries", "sqlite", prefix)
        self._max_value_bytes = max_value_bytes

    def run(self, connection: RowConnection, requests: Sequence[Request]) -> list[Answer | CommitRefused]:
        """Apply the commits; a rejected one writes nothing."""
        if len(requests) == 1:
            return self._together(connection, requests)
        answers: dict[int, Answer | CommitRefused] = {}
        for wave in _waves(requests):
            made = self._together(connection, [requests[place] for place in wave])
            answers.update(zip(wave, made, strict=True))
        return [answers[place] for place in range(len(requests))]

    def _together(self, connection: RowConnection, requests: Sequence[Request]) -> list[Answer | CommitRefused]:
        """Apply commits of different sessions."""
        found = [_SeenCommit(commit) for commit, _ in requests]
        self._look(connection, found)
        writes = _Writes(self._queries, self._max_value_bytes)
        outcomes = [decide(each.commit, each.seen) for each in found]
        for each, outcome in zip(found, outcomes, strict=True):
            if isinstance(outcome, Plan):
                writes.add(each, outcome)
        for sql, row in writes.others:
            connection.execute(sql, row)
        for name, wanted in writes.rows.items():
            if wanted:
                self._statements.run(connection, name, wanted)
        return [
            (outcome.applied, self._cells(connection, commit.session_id, want) if want else {})
            if isinstance(outcome, Plan)
            else outcome
            for outcome, (commit, want) in zip(outcomes, requests, strict=True)
        ]

    def _cells(self, connection: RowConnection, session_id: str, names: Iterable[CellName]) -> CellTexts:
        wanted = list(names)
        places = [_cell_range(at, session_id, name) for at, name in enumerate(wanted)]
        known: CellTexts = dict.fromkeys(wanted)
        for at, _, text, _ in self._statements.run(connection, "cells", places):
            known[wanted[at]] = text
        return known

    # -- looking

    def _look(self, connection: RowConnection, commits: list[_SeenCommit]) -> None:
        run = self._statements.run
        sessions = [(at, each.needs.staged, each.commit.session_id) for at, each in enumerate(commits)]
        for at, *session in run(connection, "session", sessions):
            commits[at].found_session(session)
        self._look_at_cells(connection, commits)
        lists = [(each, key) for each in commits for key in each.needs.lists]
        ends = [(at, each.commit.session_id, escape_text(key)) for at, (each, key) in enumerate(lists)]
        for at, slot, text in run(connection, "tail", ends):
            each, key = lists[at]
            each.seen.lists[key] = (LIST, int(slot[1:]) + 1) if slot else (text, 0)
        discards = [
            (at, each.commit.session_id, None if each.commit.discard_all else each.commit.discard_step)
            for at, each in enumerate(commits)
            if each.needs.discarded
        ]
        for at, count in run(connection, "discarded", discards):
            commits[at].seen.discarded = count
        begun = [
            (at, each.commit.run.run_id, each.commit.session_id)
            for at, each in enumerate(commits)
            if each.commit.run is not None
        ]
        for at, taken, turn in run(connection, "turns", begun):
            commits[at].seen.run_is_taken, commits[at].seen.latest_turn = bool(taken), turn

        copied = [(at, each.commit.copy.session_id) for at, each in enumerate(commits) if each.commit.copy is not None]
        for at, *source in run(connection, "source", copied):
            commits[at].seen.source = Source(*source)
        back = [
            (at, shelf_of(each.commit.session_id, move.returned))
            for at, each in enumerate(commits)
            for move in each.commit.branches.moves[-1:]
            if move.returned is not None
        ]
        for at, last_message, number in run(connection, "shelf", back):
            messages = commits[at].commit.branches.moves[-1].message_count if last_message is None else last_message + 1
            commits[at].seen.shelved = number, messages
        changed = [
            (at, each.commit.change_run.seen.run_id, each.commit.session_id)
            for at, each in enumerate(commits)
            if each.commit.change_run is not None
        ]
        for at, status, lease in run(connection, "lease", changed):
            commits[at].seen.lease = (status, lease)

    def _look_at_cells(self, connection: RowConnection, commits: list[_SeenCommit]) -> None:
        cells = [(each, name) for each in commits for name in each.needs.cells]
        keys = [(each, key) for each in commits for key in each.needs.keys]
        places = [_cell_range(at, each.commit.session_id, name) for at, (each, name) in enumerate(cells)]
        places += [
            (at, each.commit.session_id, escape_text(key), _FIRST_SLOT, _LAST_SLOT)
            for at, (each, key) in enumerate(keys, start=len(cells))
        ]
        for at, slot, text, since in self._statements.run(connection, "cells", places):
            if at < len(cells):
                each, name = cells[at]
                each.seen.cells[name] = Cell(text, since)
            else:
                each, key = keys[at - len(cells)]
                each.seen.keys.setdefault(key, {})[rows.slot_of(slot)] = Cell(text, since)
        everything = [(at, each.commit.session_id) for at, each in enumerate(commits) if each.needs.everything]
        for at, key, slot, text, since in self._statements.run(connection, "all_cells", everything):
            commits[at].seen.keys.setdefault(unescape_text(key), {})[rows.slot_of(slot)] = Cell(text, since)


@cache
def planned_commits(prefix: str) -> PlannedCommits:
    """Return the object for tables with that prefix. Stores on one driver share it, and therefore transactions."""
    return PlannedCommits(prefix)


class _SeenCommit:
    """A commit, and what the database holds of the data it needs."""

    __slots__ = ("commit", "is_plain", "labels", "needs", "place", "seen")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.needs: Needs = needs(commit)
        self.seen = Seen()
        self.place: int | None = None
        self.is_plain = True
        self.labels: Row = ()

    def found_session(self, row: Sequence[object]) -> None:
        """Record a row of `session`."""
        seen = self.seen
        self.place, *counters, staged, self.is_plain = row[:10]  # type: ignore[assignment]
        seen.session = Counters(*counters)  # type: ignore[arg-type]  # as the columns are
        seen.identity = Identity(*row[10:14])  # type: ignore[arg-type]  # as the columns are
        self.labels = tuple(row[14:])
        if staged:
            seen.staged = frozenset(tuple(row.split("\x1f")) for row in str(staged).split("\x1e"))  # type: ignore[misc]


class _Writes:
    """Rows to write, by the statement that writes them."""

    def __init__(self, queries: Queries, max_value_bytes: int) -> None:
        self._queries = queries
        self._max_value_bytes = max_value_bytes
        self.others: list[Statement] = []
        """Rare statements, run before all rows: they may delete, and rows only add."""
        self.rows: dict[str, list[Row]] = {
            "unstage": [],
            "stage": [],
            "drop_cell": [],
            "put_cell": [],
            "keep_cell": [],
            "insert_message": [],
            "insert_session": [],
            "count": [],
            "describe": [],
            "relabel": [],
            "set_status": [],
            "insert_checkpoint": [],
        }

    def add(self, found: _SeenCommit, plan: Plan) -> None:
        """Add what a commit writes."""
        commit, session_id, wanted = found.commit, found.commit.session_id, self.rows
        self._add_rare(commit, plan)
        if plan.unstage is not None:
            wanted["unstage"].append((session_id, plan.unstage))
        if commit.stage is not None:
            step_id, staged = commit.stage
            wanted["stage"] += [(session_id, step_id, *row) for row in staged]
        if commit.messages:
            wanted["insert_message"] += [
                (session_id, number, text, commit.now)
                for number, text in enumerate(commit.messages, start=plan.first_message)
            ]
        self._add_session(found, plan)
        kept = [] if plan.cells is None else self._add_cells(session_id, plan.cells, plan.before)
        overwritten = encode(kept) if kept and commit.checkpoint is not None else None
        if overwritten is not None and len(overwritten) > self._max_value_bytes // 4:
            overwritten = None  # more than a row can hold
        if kept and overwritten is None:
            wanted["keep_cell"] += [(session_id, plan.before + 1, *each) for each in kept]
        if commit.checkpoint is not None:
            after = plan.after
            *about, fields = commit.checkpoint
            counted = (after.message_count, after.status, after.version)
            wanted["insert_checkpoint"].append(
                (session_id, after.checkpoint_count, *about, *counted, fields, commit.now, overwritten)
            )

    def _add_cells(self, session_id: str, plan: CellPlan, since: int) -> list[Row]:
        """Add rows of cells; return the overwritten cells to keep: key, slot, text and since when."""
        self.rows["put_cell"] += [
            (session_id, escape_text(key), rows.slot_text(slot), text, since) for (key, slot), text in plan.put
        ]
        self.rows["drop_cell"] += [(session_id, escape_text(key), rows.slot_text(slot)) for key, slot in plan.drop]
        return [(escape_text(key), rows.slot_text(slot), *cell) for (key, slot), cell in plan.kept]

    def _add_session(self, found: _SeenCommit, plan: Plan) -> None:
        commit, state, place, wanted = found.commit, found.commit.state, found.place, self.rows
        *counters, status = plan.after
        if state is not None and state.status != status:
            state = msgspec.structs.replace(state, status=status)
        if commit.create:
            assert state is not None
            labels = (*rows.identity_columns(state), *rows.label_columns(state, commit.due_at))
            columns = (*labels, *rows.content_columns(state)[2:], rows.origin_column(state))
            wanted["insert_session"].append((commit.session_id, commit.now, commit.now, *counters, *columns))
            return
        wanted["count"].append((commit.now, *counters, place))
        if state is None:
            if commit.status is not None:
                wanted["set_status"].append((status, place))
            return
        _, _, *content = rows.content_columns(state)
        if not found.is_plain or content != _PLAIN:
            wanted["describe"].append((*content, place))
        labels = rows.label_columns(state, commit.due_at)
        if labels != found.labels:
            wanted["relabel"].append((*labels, place))

    def _add_rare(self, commit: Commit, plan: Plan) -> None:
        query, session_id, others = self._queries, commit.session_id, self.others
        if (copy := commit.copy) is not None:
            others.append(query("fork_messages", session_id, copy.session_id, plan.first_message))
            others.append(
                query("fork_cells", session_id, copy.session_id)
                if copy.number is None
                else query("fork_cells_at", session_id, copy.session_id, copy.number)
            )
        others += branch_statements(query, session_id, commit.branches)
        if plan.cut:
            others.append(query("cut_messages", session_id, commit.keep_messages))
        if plan.recount:
            others.append(query("recount_checkpoints", session_id, commit.keep_messages))
        if commit.restore_number is not None:
            others += [query(name, session_id, commit.restore_number) for name in _REWIND]
        if commit.discard_all:
            others.append(query("discard_all", session_id))
        elif commit.discard_step is not None:
            others.append(query("discard_step", session_id, commit.discard_step))
        if (change := commit.change_run) is not None:
            changes = rows.run_changes(change.changes, change.wanted)
            others.append(query("update_run", change.seen.run_id, encode([change.seen.status]), *changes, None, None))
        if commit.run is not None:
            others.append(query("insert_run", session_id, commit.run.run_id, *rows.run_columns(commit.run)))
        others += [query("put_ref", session_id, *rows.ref_columns(ref)) for ref in commit.refs]
        if commit.clear_flag:
            others.append(query("clear_flag", session_id))
        if commit.flag is not None:
            others.append(query("set_flag", session_id, *rows.flag_columns(commit.flag)))


def _waves(requests: Sequence[Request]) -> list[list[int]]:
    """Group the positions of requests so that those of one session are in different groups, in order, and see each
    other.

    A commit that copies a session counts as one of that session.
    """
    waves: list[list[int]] = []
    made: dict[str, int] = {}
    for place, (commit, _) in enumerate(requests):
        ids = (commit.session_id,) if commit.copy is None else (commit.session_id, commit.copy.session_id)
        before = max(made.get(each, 0) for each in ids)
        made |= dict.fromkeys(ids, before + 1)
        if before == len(waves):
            waves.append([])
        waves[before].append(place)
    return waves


def _cell_range(at: int, session_id: str, name: CellName) -> Row:
    slot = rows.slot_text(name.slot)
    return at, session_id, escape_text(name.key), slot, slot
