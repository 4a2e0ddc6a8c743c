"""Changes of branches as statements: rows move between a session and its shelves, within their tables.

A shelf is a name that no session can have. Shelved rows are found by it only, so no read of the
session returns them. All statements find their rows by a key, so a move costs what it moves.
"""

from __future__ import annotations

from ....stores.state.commit import BranchChanges, BranchMove
from ..driver import Statement
from ..queries import Queries

TABLES_ON_A_SHELF = (
    "__agents_messages",
    "__agents_custom_state",
    "__agents_past",
    "__agents_staging",
    "__agents_checkpoints",
)


def shelf_of(session_id: str, branch_id: str) -> str:
    """Return the name under which the rows of a branch are put aside. Ids have no control characters."""
    return f"{session_id}\x1c{branch_id}"


def branch_statements(queries: Queries, session_id: str, changes: BranchChanges) -> list[Statement]:
    """Return the statements of a change, in order."""
    statements: list[Statement] = []
    for move in changes.moves:
        statements += _moved(queries, session_id, move)
    for branch_id, about, state in changes.rows:
        shelf = shelf_of(session_id, branch_id)
        statements.append(queries("put_branch", session_id, branch_id, shelf, about, state))
    for branch_id in changes.dropped:
        statements += _on_shelf(queries, "drop_rows", shelf_of(session_id, branch_id))
        statements.append(queries("drop_branch", session_id, branch_id))
    return statements


def _moved(queries: Queries, session_id: str, move: BranchMove) -> list[Statement]:
    shelf, number = shelf_of(session_id, move.shelved), move.number
    statements = [
        queries("shelve_messages", session_id, shelf, move.message_count),
        queries("shelve_cells", session_id, shelf, number),
        queries("rewind_old_cells", session_id, number),  # while what was overwritten is still here
        queries("shelve_past", session_id, shelf, number),
        queries("shelve_fork", session_id, shelf, number),
        queries("shelve_checkpoints", session_id, shelf, number),
        queries("recount_checkpoints", session_id, move.message_count),
        queries("shelve_staging", session_id, shelf),
    ]
    if move.returned is not None:
        back = shelf_of(session_id, move.returned)
        statements.append(queries("unshelve_old_cells", session_id, back, number))
        statements.append(queries("unshelve_fork", session_id, number))
        statements += _on_shelf(queries, "move_rows", session_id, back)
    return statements


def _on_shelf(queries: Queries, name: str, *params: str) -> list[Statement]:
    prefix = queries["states_table"].removesuffix("__agents_states")
    text = queries[name]
    return [Statement(text.replace(f"{prefix}__agents_moved", prefix + table), params) for table in TABLES_ON_A_SHELF]
