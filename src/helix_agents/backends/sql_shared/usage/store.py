"""Usage entries as rows: one table of entries, one of links between sessions; the database computes the sums.

Knows SQL and the shape of a row, nothing of what is allowed (`stores/usage/base.py`) or of a technology (the driver).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....clock import Clock, system_clock
from ....stores.usage.base import UsageFilter, UsageStoreBase, UsageSums
from ....stores.usage.contract import CustomEntry, SubagentEntry, TokensEntry, ToolEntry, UsageEntry, UsageKind
from ..driver import Row, SqlDriver, Statement, Value
from ..queries import Queries


class SqlUsageStore(UsageStoreBase):
    """UsageStore on a migrated database that the caller opened, and closes."""

    def __init__(self, driver: SqlDriver, *, prefix: str = "", clock: Clock = system_clock) -> None:
        super().__init__(clock=clock)
        self._driver = driver
        self._queries = Queries("usage/usage_queries", driver.dialect, prefix)

    async def _insert(self, entries: list[UsageEntry]) -> int:
        answers = await self._driver.batch(self.insertion(entries))
        return sum(len(rows) for rows in answers[: len(entries)])

    def insertion(self, entries: Sequence[UsageEntry]) -> list[Statement]:
        """Return the statements that store entries: first the entries, then the links they name."""
        statements = [self._queries("insert_entry", *_row(entry)) for entry in entries]
        for entry in entries:
            if entry.parent_session_id:
                statements.append(self._queries("link_to_parent", entry.session_id, entry.id))
            if isinstance(entry, SubagentEntry):
                statements.append(self._queries("link_to_child", entry.session_id, entry.id))
        return statements

    @property
    def driver(self) -> SqlDriver:
        """The driver of the entries: a state store on the same driver can carry them."""
        return self._driver

    async def _entries(self, session_id: str, kinds: tuple[UsageKind, ...]) -> list[UsageEntry]:
        statement = self._filtered("session_entries", UsageFilter(session_id=session_id, kinds=kinds), ())
        rows = (await self._driver.batch([statement], read_only=True))[0]
        return [_entry(row) for row in rows]

    async def _sums(self, session_id: str, include_sub_sessions: bool) -> Iterable[UsageSums]:
        statement = self._queries("tree_sums" if include_sub_sessions else "sums", session_id)
        rows = (await self._driver.batch([statement], read_only=True))[0]
        return [_sums(row) for row in rows]

    async def _select(
        self, wanted: UsageFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[UsageEntry], int | None]:
        statements = [self._filtered("select_entries", wanted, (limit, offset))]
        if count:
            statements.append(self._filtered("count_entries", wanted, ()))
        answers = await self._driver.batch(statements, read_only=True)
        return [_entry(row) for row in answers[0]], int(answers[1][0][0]) if count else None

    async def _delete(self, session_id: str, include_sub_sessions: bool) -> int:
        if not include_sub_sessions:
            return len((await self._driver.batch([self._queries("delete_session", session_id)]))[0])
        both = [self._queries("delete_tree", session_id), self._queries("delete_tree_links", session_id)]
        return len((await self._driver.batch(both))[0])

    async def _delete_life(self, session_id: str, incarnation: str) -> int:
        return len((await self._driver.batch([self._queries("delete_life", session_id, incarnation)]))[0])

    def _filtered(self, name: str, wanted: UsageFilter, params: tuple[Value, ...]) -> Statement:
        """Return the statement with the conditions of `wanted`, whose parameters come after `params`."""
        conditions = []
        for field in wanted.__struct_fields__:
            value = getattr(wanted, field)
            if value is not None:
                values = value if isinstance(value, tuple) else (value,)
                numbers = range(len(params) + 1, len(params) + 1 + len(values))
                marks = ", ".join(f"?{number}" for number in numbers)
                conditions.append(self._queries[f"filter_{field}"].replace("{value}", marks))
                params += values
        return Statement(self._queries[name].replace("{filters}", " AND ".join(conditions) or "1 = 1"), params)


def _row(entry: UsageEntry) -> tuple[Value, ...]:
    """Return an entry as the parameters of `insert_entry`."""
    name: str
    sub_session_id = duration_ms = success = whole = real = None
    tokens: tuple[Value, ...] = (None,) * 6
    match entry:
        case TokensEntry():
            name = entry.model
            tokens = (entry.prompt, entry.completion, entry.reasoning, entry.cached, entry.cache_written, entry.total)
        case ToolEntry():
            name, duration_ms, success = entry.tool_name, entry.duration_ms, int(entry.success)
        case SubagentEntry():
            name, duration_ms, success = entry.agent_type, entry.duration_ms, int(entry.success)
            sub_session_id = entry.sub_session_id
        case CustomEntry():
            name = entry.name
            whole, real = (None, entry.value) if isinstance(entry.value, float) else (entry.value, None)
    shared = (entry.run_id, entry.step_count, entry.source, entry.timestamp, entry.parent_session_id)
    numbers = (*tokens, duration_ms, success, whole, real)
    return (entry.session_id, entry.id, entry.kind, name, *shared, sub_session_id, *numbers, entry.incarnation)


def _entry(row: Row) -> UsageEntry:
    """Return a row in the order of `insert_entry` as an entry."""
    session_id, entry_id, kind, name, run_id, step_count, source, timestamp, parent, sub_session_id = row[:10]
    prompt, completion, reasoning, cached, cache_written, total, duration_ms, success, whole, real, life = row[10:]
    shared: dict[str, Any] = {
        "session_id": session_id,
        "id": entry_id,
        "run_id": run_id,
        "step_count": step_count,
        "source": source,
        "timestamp": timestamp,
        "parent_session_id": parent,
        "incarnation": life,
    }
    if kind == "tokens":
        return TokensEntry(
            **shared,
            model=name,
            prompt=prompt,
            completion=completion,
            reasoning=reasoning,
            cached=cached,
            cache_written=cache_written,
            total=total,
        )
    if kind == "custom":
        return CustomEntry(**shared, name=name, value=whole if real is None else float(real))
    shared |= {"duration_ms": duration_ms, "success": bool(success)}
    if kind == "tool":
        return ToolEntry(**shared, tool_name=name)
    return SubagentEntry(**shared, agent_type=name, sub_session_id=sub_session_id)


def _sums(row: Row) -> UsageSums:
    # int(): some databases add integers up to decimals.
    kind, name, *numbers = row
    calls, failures, duration_ms, *tokens, whole = (int(each or 0) for each in numbers[:-1])
    prompt, completion, reasoning, cached, cache_written, total = tokens
    return UsageSums(
        kind=kind,
        name=name,
        calls=calls,
        failures=failures,
        duration_ms=duration_ms,
        prompt=prompt,
        completion=completion,
        reasoning=reasoning,
        cached=cached,
        cache_written=cache_written,
        total=total,
        amount=whole if numbers[-1] is None else whole + float(numbers[-1]),
    )
