"""Translate shared statements for asyncpg: `$1` for `?1`, tables in a schema, many reads as one statement.

Knows text only. Names are qualified in the text and not by `search_path`, because a setting of the session is lost or,
worse, kept for another client behind a transaction-mode pooler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import InvalidArgument
from ..sql_shared.driver import Statement, Value

_PARAMETER = re.compile(r"\?(\d+)")
_NAME = re.compile(r"((?:(?<!DROP )\bINDEX|\bTRIGGER|\bCONSTRAINT)\s+)?(?<![\w\".])(\w*__agents_\w+)")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")


def checked_schema(schema: str | None) -> str | None:
    """Return the schema name. Raises `InvalidArgument` unless it is a plain identifier, because it becomes part of
    statements."""
    if schema is not None and not _SCHEMA.fullmatch(schema):
        raise InvalidArgument(f"A schema name must be a plain identifier of at most 63 characters, not {schema!r}.")
    return schema


def quoted(schema: str) -> str:
    """Return the schema name in quotes, which preserve capitals."""
    return f'"{schema}"'


def qualified(sql: str, schema: str | None) -> str:
    """Return the same statement on the tables of a schema. Indexes and triggers are created where their table is."""
    if schema is None:
        return sql
    return _NAME.sub(lambda found: found[0] if found[1] else f"{quoted(schema)}.{found[2]}", sql)


def numbered(sql: str, offset: int = 0) -> str:
    """Return the statement with `$n` for `?n`, numbered from `offset`."""
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + offset}", sql)


def parameter_count(sql: str) -> int:
    """Return how many parameters a statement takes."""
    return max((int(number) for number in _PARAMETER.findall(sql)), default=0)


def one_snapshot(statements: Sequence[Statement]) -> tuple[str, list[Value]]:
    """Combine several SELECTs into one that returns an array of rows for each: one round trip, one snapshot."""
    params: list[Value] = []
    columns = []
    for statement in statements:
        columns.append(f"ARRAY(SELECT r FROM ({numbered(statement.sql, len(params))}) AS r)")
        params += statement.params
    return f"SELECT {', '.join(columns)}", params
