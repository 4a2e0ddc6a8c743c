"""Rows of sessions that do not exist: the library never leaves any, but a bad restore of a backup might."""

from __future__ import annotations

from ..driver import Statement
from ..queries import Queries


def orphans_statement(queries: Queries, table: str, limit: int) -> Statement:
    """Return a statement that finds the sessions that one table refers to but that do not exist."""
    states, branches = queries["states_table"], queries["branches_table"]
    name = states.removesuffix("__agents_states") + table
    sql = (
        f"SELECT DISTINCT t.session_id FROM {name} AS t "
        f"WHERE NOT EXISTS (SELECT 1 FROM {states} AS s WHERE s.session_id = t.session_id) "
        f"AND NOT EXISTS (SELECT 1 FROM {branches} AS b WHERE b.shelf = t.session_id) LIMIT ?1"
    )
    return Statement(sql, (limit,))


def drop_orphan_statement(queries: Queries, table: str, session_id: str) -> Statement:
    """Return a statement that deletes a session's rows from one table, unless the session exists after all."""
    states = queries["states_table"]
    name = states.removesuffix("__agents_states") + table
    sql = (
        f"DELETE FROM {name} WHERE session_id = ?1 "
        f"AND NOT EXISTS (SELECT 1 FROM {states} AS s WHERE s.session_id = ?1) RETURNING 1"
    )
    return Statement(sql, (session_id,))
