"""The batch functions: all named statements of one file as one server-side function, so that a batch is one call.

asyncpg sends one statement at a time, so a batch of ten would be twelve round trips. A single statement with CTEs would
be one, but all its parts see the moment when it began: a writer that had to wait for a row would then decide by what
was true before. In a function each statement sees what was committed before it, exactly as in a transaction of many
round trips, and its plan is kept. The function gets numbers of statements and their parameters, and returns the rows of
each as JSON.

A function is derived from the statements and its name carries their hash: an older or newer version of this library
that works on the same database has functions of its own. Types of parameters are what the server infers.

Where the role may not create functions the driver works without them, in more round trips.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple, Protocol

from ...errors import StoreError
from ..sql_shared.queries import Queries, with_prefix
from .dialect import numbered, parameter_count, qualified

_GENERATION = "1"
"""Part of the hash: increase it when the text below changes what a function does."""

_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM) \w*__agents_|__agents_delete_tree\(")
_NOT_AS_JSON = frozenset({"sums", "tree_sums", "read_messages_as_one", "read_session_as_one"})
"""Statements whose rows asyncpg reads: floats, of which 1.0 would come back as 1, and long texts, which JSON would
escape once more."""

_EXACT_IN_JSON = frozenset({"text", "int8", "int4", "int2", "bool"})


MAX_PARAMETERS = 24
_VARIABLES = {"text": ("t", ""), "int8": ("n", "::int8"), "int4": ("n", "::int8"), "float8": ("f", "::float8")}
"""Types of parameters: the prefix of their variables, and how a value is read from its text."""


class Operation(NamedTuple):
    """The position of a statement in its function."""

    function: str
    number: int
    parameters: int
    writes: bool


class Described(Protocol):
    """The part of a prepared statement's interface that is used here."""

    def get_parameters(self) -> tuple[object, ...]: ...

    def get_attributes(self) -> tuple[object, ...]: ...


class Prepares(Protocol):
    """The part of a connection's interface that is used here."""

    async def prepare(self, query: str) -> Described: ...

    async def execute(self, query: str) -> str: ...


class ServerFunction(Protocol):
    """A function on the server that the driver calls, and how to create it."""

    name: str
    function_names: tuple[str, ...]

    async def create(self, connection: Prepares) -> None: ...


class BatchFunction:
    """The function for the statements of one file."""

    def __init__(self, file: str, label: str, *, schema: str | None, prefix: str, own_writes: bool) -> None:
        """Derive the function. `own_writes`: of the statements that write, include only those with a Postgres
        override."""
        self._queries = Queries(file, "postgres", prefix)
        self._schema = schema
        names = [name for name in self._queries.names() if _belongs(name, self._queries[name])]
        if own_writes:
            own = self._queries.own_names
            names = [name for name in names if name in own or not _WRITES.search(self._queries[name])]
        self.statements = {name: self._queries[name] for name in names}
        digest = hashlib.blake2b(_GENERATION.encode(), digest_size=4)
        for text in self.statements.values():
            digest.update(text.encode() + b"\0")
        self.name = with_prefix(f"__agents_{label}_batch_{digest.hexdigest()}", prefix)
        self._read_name = self.name.replace("_batch_", "_read_")
        self.function_names: tuple[str, ...] = (self.name, self._read_name)

    @property
    def write_call(self) -> str:
        """The statement that calls the function for a batch that writes: each statement sees what was committed before
        it."""
        return f"SELECT {qualified(self.name, self._schema)}($1::int[], $2::text[])"

    @property
    def read_call(self) -> str:
        """The statement that calls the function for a batch that only reads: all statements see one snapshot."""
        return f"SELECT {qualified(self._read_name, self._schema)}($1::int[], $2::text[])"

    def operations(self) -> dict[str, Operation]:
        """Return where each statement is, by its text."""
        return {
            text: Operation(self.name, number, parameter_count(text), bool(_WRITES.search(text)))
            for number, text in enumerate(self.statements.values())
        }

    async def create(self, connection: Prepares) -> None:
        """Create both functions. The caller holds the lock that keeps other processes from doing the same."""
        branches: dict[int, str] = {}
        for number, (name, text) in enumerate(self.statements.items()):
            sql = qualified(text, self._schema)
            try:
                described = await connection.prepare(numbered(sql))
            except Exception as error:
                raise StoreError(f"Postgres cannot prepare the statement {name!r}: {error}") from error
            types = [each.name for each in described.get_parameters()]  # type: ignore[attr-defined]
            columns = [each.type.name for each in described.get_attributes()]  # type: ignore[attr-defined]
            if not _EXACT_IN_JSON.issuperset(columns):
                raise StoreError(f"The statement {name!r} returns {columns}, which JSON cannot carry exactly.")
            branches[number] = _branch(name, sql, types, columns)
        writing = _decide(branches, sorted(branches), 1)
        await connection.execute(_function(qualified(self.name, self._schema), "VOLATILE", writing))
        texts = enumerate(self.statements.values())
        reads = [number for number, text in texts if not _WRITES.search(text)]
        reading = _decide(branches, reads, 1)
        await connection.execute(_function(qualified(self._read_name, self._schema), "STABLE", reading))


def _belongs(name: str, text: str) -> bool:
    """Return whether this is a whole statement, not a fragment or a template that other code completes."""
    if name in _NOT_AS_JSON:
        return False
    return bool(_STATEMENT.match(text)) and "{" not in re.sub(r"'[^']*'", "", text) and "__agents_doomed" not in text


def _branch(name: str, sql: str, types: list[str], columns: list[str]) -> str:
    lines = [f"-- {name}"]
    for place, kind in enumerate(types, start=1):
        # A variable instead of the array's element: the executor prepares it in no time, however often it is named.
        letter, cast = _VARIABLES.get(kind, ("t", ""))
        lines.append(f"_{letter}{place} := _p[_o + {place}]{cast};")
        sql = re.sub(rf"\?{place}\b", f"_{letter}{place}", sql)
    if columns:
        marks = ", ".join(f"c{place}" for place in range(len(columns)))
        lines.append(f"WITH q ({marks}) AS ({sql})\nSELECT json_agg(json_build_array({marks})) INTO _rows FROM q;")
        lines.append("_answers[_i] := _rows;")
    else:
        lines.append(f"{sql};")
    lines.append(f"_o := _o + {len(types)};")
    return "\n".join(lines)


def _decide(branches: dict[int, str], numbers: list[int], depth: int) -> str:
    """Return a binary decision tree: a long chain of ELSIF would cost more than many of the statements."""
    if not numbers:
        return "NULL;"
    if len(numbers) == 1:
        return branches[numbers[0]]
    middle = len(numbers) // 2
    low = _decide(branches, numbers[:middle], depth + 1)
    high = _decide(branches, numbers[middle:], depth + 1)
    return f"IF _n < {numbers[middle]} THEN\n{low}\nELSE\n{high}\nEND IF;"


def _function(name: str, volatility: str, body: str) -> str:
    # Every statement knows its index. Without these settings the plan that was best for an empty table could stay.
    variables = "".join(f"_t{place} text; _n{place} int8; _f{place} float8; " for place in range(1, MAX_PARAMETERS + 1))
    return f"""CREATE OR REPLACE FUNCTION {name}(_numbers int[], _p text[]) RETURNS text[] LANGUAGE plpgsql {volatility}
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $batch$
#variable_conflict use_column
DECLARE
  _answers text[] := array_fill(NULL::text, ARRAY[cardinality(_numbers)]);
  _rows text;
  {variables}
  _o int := 0;
  _i int := 0;
  _n int;
BEGIN
FOREACH _n IN ARRAY _numbers LOOP
_i := _i + 1;
{body}
END LOOP;
RETURN _answers;
END $batch$"""
