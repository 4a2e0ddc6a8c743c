"""`list_sessions` and `list_due` as SQL: the conditions of a filter, and the index that a page should follow.

A page is one statement per status asked for, each in the order of an index, merged afterwards: one statement over
several statuses would have to read all sessions to keep the order.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....codec import encode, escape_text
from ....stores.state.commit import AFTER_RUNS, ClaimableFilter, SessionFilter
from ..driver import Row, Statement, Value
from ..queries import Queries
from .rows import RUN_COLUMNS

CREATED_AT = 20
"""The position of created_at in a row of `read_session`."""
MAX_LOOKED_AT = 5000
LAST_CHARACTER = "\U0010ffff"


class _Conditions:
    def __init__(self) -> None:
        self.clauses: list[str] = []
        self.params: list[Value] = []

    def add(self, clause: str, *values: Value) -> None:
        """Add a clause with `?` for each value."""
        for value in values:
            self.params.append(value)
            clause = clause.replace("?", f"\x00{len(self.params)}", 1)
        self.clauses.append(clause.replace("\x00", "?"))


def page_statements(queries: Queries, wanted: SessionFilter, limit: int) -> list[Statement]:
    """Return statements that return up to `limit` matching sessions each, newest first."""
    return [_page(queries, wanted, status, limit) for status in wanted.statuses or (None,)]


def merged_page(results: list[list[Row]], limit: int, offset: int) -> list[Row]:
    """Merge the rows of several statements into one page."""
    found = [row for rows in results for row in rows]
    if len(results) > 1:
        found.sort(key=lambda row: (row[CREATED_AT], row[0]), reverse=True)
    return found[offset : offset + limit]


def count_statement(queries: Queries, wanted: SessionFilter) -> Statement:
    """Return a statement that counts all matching sessions, wherever the page starts."""
    table, conditions = _matching(queries, wanted, None, keyset=False)
    if wanted.statuses:
        marks = " OR ".join("s.status = ?" for _ in wanted.statuses)
        conditions.add(f"({marks})", *wanted.statuses)
    return Statement(f"SELECT COUNT(*) FROM {table}{_where(conditions)}", tuple(conditions.params))


def prefix_statement(queries: Queries, prefix: str, user_id: str | None, limit: int) -> Statement:
    """Return a statement that finds sessions by id prefix, among the first few thousand matches."""
    states = queries["states_table"]
    columns, flags = _session_columns(queries)
    conditions = _Conditions()
    begins = "session_id >= ?" + (" AND session_id < ?" if (end := after_prefix(prefix)) is not None else "")
    bounds = (prefix,) if end is None else (prefix, end)
    conditions.add(
        f"s.session_id IN (SELECT session_id FROM {states} WHERE {begins} ORDER BY session_id LIMIT {MAX_LOOKED_AT})",
        *bounds,
    )
    if user_id is not None:
        conditions.add("s.user_id = ?", user_id)
    conditions.params.append(limit)
    sql = (
        f"{columns}FROM {states} AS s LEFT JOIN{flags}{_where(conditions)} "
        f"ORDER BY s.session_id LIMIT ?{len(conditions.params)}"
    )
    return Statement(sql, tuple(conditions.params))


def after_prefix(prefix: str) -> str | None:
    """Return the smallest string after all that start with `prefix`; None if there is none."""
    kept = prefix.rstrip(LAST_CHARACTER)
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not characters


def claimable_statements(queries: Queries, wanted: ClaimableFilter, limit: int) -> list[Statement]:
    """Return statements that find up to `limit` due sessions each: by the leases of open runs, and by `due_at`."""
    states, runs = queries["states_table"], queries["runs_table"]
    latest = f"r.position = (SELECT MAX(n.position) FROM {runs} AS n WHERE n.session_id = s.session_id)"
    flags = _session_columns(queries)[1]
    lease, by_lease = "COALESCE(r.lease_until, 0)", _due_conditions(queries, wanted)
    by_lease.add("s.parent_session_id IS NULL")  # as is every session that is due by itself
    by_lease.add(f"r.status = 'running' AND {lease} <= ? AND s.session_id = r.session_id AND {latest}", wanted.now)
    by_time = _due_conditions(queries, wanted)
    by_time.add("s.due_at <= ? AND (r.status IS NULL OR r.status <> 'running')", wanted.now)
    if (after := wanted.after) is not None:
        # The first comparison is in the second one, but lets an index begin there.
        by_lease.add(f"{lease} >= ? AND ({lease}, r.started_at, r.session_id) > (?, ?, ?)", after.due_at, *after)
        by_time.add(f"s.due_at >= ? AND (s.due_at, {AFTER_RUNS}, s.session_id) > (?, ?, ?)", after.due_at, *after)
    # CROSS JOIN: the runs come first, in the order of their index.
    of_leases = f"{runs} AS r CROSS JOIN {states} AS s LEFT JOIN{flags}"
    of_times = f"{states} AS s LEFT JOIN {runs} AS r ON r.session_id = s.session_id AND {latest} LEFT JOIN{flags}"
    return [
        _due_page(queries, of_leases, by_lease, lease, f"{lease}, r.started_at, r.session_id", limit),
        _due_page(queries, of_times, by_time, "s.due_at", "s.due_at, s.session_id", limit),
    ]


def _due_conditions(queries: Queries, wanted: ClaimableFilter) -> _Conditions:
    conditions = _Conditions()
    # COALESCE keeps the planner from other indexes: few sessions are due, whatever their status and agent.
    if wanted.statuses:
        marks = " OR ".join("COALESCE(s.status, '') = ?" for _ in wanted.statuses)
        conditions.add(f"({marks})", *wanted.statuses)
    if wanted.agent_types is not None:
        conditions.add(f"COALESCE(s.agent_type, '') {queries['one_of']}", encode(list(wanted.agent_types)))
    return conditions


def _due_page(queries: Queries, tables: str, conditions: _Conditions, moment: str, order: str, limit: int) -> Statement:
    columns = _session_columns(queries)[0]
    conditions.params.append(limit)
    # D1 returns rows by name, so no two columns may have the same one.
    run = ", ".join(f"{column.strip()} AS run_{number}" for number, column in enumerate(RUN_COLUMNS.split(",")))
    sql = f"{columns}, {run}, {moment} AS due FROM {tables}{_where(conditions)} ORDER BY {order}"
    return Statement(f"{sql} LIMIT ?{len(conditions.params)}", tuple(conditions.params))


def _session_columns(queries: Queries) -> tuple[str, str]:
    """Return the columns of a session, and the join that adds its flag."""
    columns, rest = queries["read_session"].split("FROM", 1)
    return columns, rest.split("LEFT JOIN", 1)[1].split("WHERE", 1)[0]


def _page(queries: Queries, wanted: SessionFilter, status: str | None, limit: int) -> Statement:
    table, conditions = _matching(queries, wanted, status, keyset=True)
    columns, flags = _session_columns(queries)
    alias = "l" if wanted.tags or wanted.metadata else "s"
    # Expired sessions are few: find them by expiry and sort, rather than walk all sessions in order of age.
    order = f"+{alias}.created_at" if wanted.expires_before is not None else f"{alias}.created_at"
    conditions.params.append(limit)
    sql = (
        f"{columns}FROM {table} LEFT JOIN{flags}{_where(conditions)} "
        f"ORDER BY {order} DESC, {alias}.session_id DESC LIMIT ?{len(conditions.params)}"
    )
    return Statement(sql, tuple(conditions.params))


def _matching(queries: Queries, wanted: SessionFilter, status: str | None, *, keyset: bool) -> tuple[str, _Conditions]:
    states, labels, place = queries["states_table"], queries["labels_table"], queries["label_place"]
    conditions = _Conditions()
    wanted_labels = [*_labels(wanted)]
    table, alias = f"{states} AS s", "s"
    if wanted_labels:
        # Follow the first label's own index, newest first; CROSS JOIN keeps the planner from turning it round.
        table, alias = f"{labels} AS l CROSS JOIN {states} AS s", "l"
        conditions.add(f"l.label = {place} AND s.session_id = l.session_id", wanted_labels[0])
        for label in wanted_labels[1:]:
            conditions.add(
                f"EXISTS (SELECT 1 FROM {labels} AS m WHERE m.label = {place} "
                "AND m.created_at = l.created_at AND m.session_id = l.session_id)",
                label,
            )
    if keyset and wanted.after is not None:
        conditions.add(f"({alias}.created_at, {alias}.session_id) < (?, ?)", *wanted.after)
    equal = {
        "user_id": wanted.user_id,
        "agent_type": wanted.agent_type,
        "status": status,
        "parent_session_id": wanted.parent_session_id,
    }
    for column, value in equal.items():
        if value is not None:
            conditions.add(f"s.{column} = ?", value)
    if wanted.roots_only:
        conditions.add("s.parent_session_id IS NULL")
    bounds = (("created_at >=", wanted.created_from), ("created_at <", wanted.created_to))
    for comparison, bound in (*bounds, ("expires_at <", wanted.expires_before)):
        if bound is not None:
            conditions.add(f"s.{comparison} ?", bound)
    return table, conditions


def _labels(wanted: SessionFilter) -> Iterator[str]:
    for tag in wanted.tags:
        yield f"tag:{escape_text(tag)}"
    for key, text in wanted.metadata:
        yield f"meta:{escape_text(key)}\x1f{escape_text(text)}"


def _where(conditions: _Conditions) -> str:
    return f" WHERE {' AND '.join(conditions.clauses)}" if conditions.clauses else ""
