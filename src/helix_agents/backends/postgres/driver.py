"""The Postgres driver: a batch is one call of a server-side function, on any connection of the pool, in parallel.

Nothing here depends on the session of a connection, so a transaction-mode pooler may sit in between; with it every
batch is wrapped in a transaction, because a statement and its parameters travel separately and must not be parted.
The first batch brings the database up to date.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from ...codec import decode
from ...errors import StoreUnavailable
from ...retry import TRANSIENT
from ..sql_shared.driver import Dialect, Row, Statement
from .borrowed import BorrowedConnections
from .commit_call import CommitFunction
from .dialect import checked_schema, numbered, one_snapshot, qualified
from .driver_errors import NO_FUNCTION, RETRYABLE, is_lost_connection, raise_translated
from .functions import BatchFunction, Operation
from .prepare import batch_functions, joint_function, prepare_database

if TYPE_CHECKING:
    from .borrowed import Connection, Pool

T = TypeVar("T")


class PostgresDriver:
    """`SqlDriver` on an asyncpg pool that the caller opened, and closes. Several stores may share it."""

    def __init__(
        self, pool: Pool, *, schema: str | None = None, prefix: str = "", transaction_pooler: bool = False
    ) -> None:
        self.pool = pool
        self.schema = checked_schema(schema)
        self.prefix = prefix
        self.transaction_pooler = transaction_pooler
        self._lanes = BorrowedConnections(pool)
        self.commit_function = CommitFunction(schema=self.schema, prefix=prefix)
        self._commit_calls = [self.commit_function.call(as_list=each, temporary=False) for each in (False, True)]
        self._functions: list[BatchFunction] = batch_functions(self.schema, prefix)
        self.joint_function = joint_function(self._functions, self.commit_function, self.schema, prefix)
        self._joint_calls = [self.joint_function.call(as_list=each) for each in (False, True)]
        self.has_joint = False
        self._calls = {each.name: (each.write_call, each.read_call) for each in self._functions}
        self._operations: dict[str, Operation] = {}
        self._texts: dict[str, str] = {}
        self._has_commit = False
        self._ready = False
        self._preparing = asyncio.Lock()
        self._closed = False

    @property
    def dialect(self) -> Dialect:
        return "postgres"

    @property
    def max_parameter_bytes(self) -> int:
        # A text may hold 1 GB, but all of a batch is parsed in memory.
        return 100_000_000

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        return await self._repeatedly(lambda connection: self._run(connection, statements, read_only), read_only)

    async def call(self, sql: str, params: Sequence[Any]) -> Any:
        """Run one statement that writes, in Postgres's own SQL; return the first value of its first row."""
        return await self._repeatedly(lambda connection: connection.fetchval(sql, *params), read_only=False)

    async def commit(self, params: Sequence[Any], *, as_list: bool) -> str:
        """Call the commit function and return its result."""
        return await self._repeatedly(lambda connection: self._commit(connection, params, as_list), read_only=False)

    async def commit_along(
        self,
        params: Sequence[Any],
        *,
        as_list: bool,
        place: int,
        after: int,
        append: Sequence[Statement],
        usage: Sequence[Statement],
    ) -> tuple[str, list[list[Row]]]:
        """Call the commit function with an append and usage; return its result and the rows of the append.

        `place`: of the text, counted from one, that says where in the stream the checkpoint is; 0: there is none.
        """
        answers = await self._repeatedly(
            lambda connection: self._joint(connection, params, as_list, place, after, append, usage), read_only=False
        )
        committed, *appended = answers
        return committed, [[tuple(row) for row in decode(text)] if text else [] for text in appended]

    async def prepare(self) -> None:
        """Bring the database up to date now rather than with the first batch. Raises what a batch would."""
        try:
            await self._prepare()
        except Exception as error:
            raise_translated(error)

    async def ensure_prepared(self, place: str) -> None:
        """Prepare without changing the database. Raises `NotMigrated`, naming the address, if something is missing."""
        try:
            await self._prepare(only_look_at=place)
        except Exception as error:
            raise_translated(error)

    async def close(self) -> None:
        """Return the connections to the pool, which stays open."""
        self._closed = True
        await self._lanes.close()

    async def _repeatedly(self, work: Callable[[Connection], Awaitable[T]], read_only: bool) -> T:
        if self._closed:
            raise StoreUnavailable("This store on Postgres is closed: open it again.")
        for attempt in TRANSIENT.attempts():
            try:
                if not self._ready:
                    await self._prepare()
                return await self._attempt(work)
            except Exception as error:
                if attempt + 1 == TRANSIENT.tries or not self._may_repeat(error, read_only):
                    raise_translated(error)
                if attempt:
                    await asyncio.sleep(random.uniform(0, TRANSIENT.delay_seconds(attempt)))
        raise AssertionError("unreachable")

    def _may_repeat(self, error: Exception, read_only: bool) -> bool:
        if isinstance(error, asyncpg.PostgresError):
            if error.sqlstate in RETRYABLE:
                return True
            if error.sqlstate == NO_FUNCTION and self._ready:
                self._ready = False  # our functions have been dropped
                self._operations = {}
                return True
        return read_only and is_lost_connection(error) and not isinstance(error, TimeoutError)

    async def _prepare(self, *, only_look_at: str | None = None) -> None:
        async with self._preparing:
            if self._ready:
                return
            async with self.pool.acquire() as connection:
                there = await prepare_database(
                    connection,
                    [*self._functions, self.commit_function, self.joint_function],
                    schema=self.schema,
                    prefix=self.prefix,
                    only_look_at=only_look_at,
                )
            self._operations = {}
            self._has_commit = self.commit_function.name in there
            self.has_joint = self.joint_function.name in there
            for function in self._functions:
                if function.name in there:
                    self._operations |= function.operations()
            self._ready = True

    async def _attempt(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        lane = await self._lanes.take()
        clean = False
        try:
            if self.transaction_pooler or not lane.keeps_statements:
                # Statements are prepared again each time, as is usual behind a pooler: see the module's first lines.
                async with lane.connection.transaction():
                    answer = await work(lane.connection)
            else:
                answer = await work(lane.connection)
            clean = True
        except Exception as error:
            if is_lost_connection(error):
                lane.connection.terminate()
            else:
                # If the server has said no, the connection is as before.
                clean = isinstance(error, asyncpg.PostgresError)
            raise
        finally:
            self._lanes.give(lane, clean=clean)
        return answer

    async def _commit(self, connection: Connection, params: Sequence[Any], as_list: bool) -> str:
        function = self.commit_function
        if self._has_commit:
            answer: str = await connection.fetchval(self._commit_calls[as_list], *params)
            return answer
        # This role may not create functions where the tables are: one that lives as long as the transaction will do.
        async with connection.transaction():
            await function.create(connection, temporary=True)
            return await connection.fetchval(function.call(as_list=as_list, temporary=True), *params)  # type: ignore[no-any-return]

    async def _joint(
        self,
        connection: Connection,
        params: Sequence[Any],
        as_list: bool,
        place: int,
        after: int,
        append: Sequence[Statement],
        usage: Sequence[Statement],
    ) -> list[str]:
        answers: list[str] = await connection.fetchval(
            self._joint_calls[as_list], *params, place, after, *self._numbered(append), *self._numbered(usage)
        )
        return answers

    def _numbered(self, statements: Sequence[Statement]) -> tuple[list[int], list[str | None]]:
        """Return statements in the form that a batch function takes."""
        return [self._operations[each.sql].number for each in statements], [
            each if each is None or each.__class__ is str else str(each)
            for statement in statements
            for each in statement.params
        ]

    async def _run(self, connection: Connection, statements: Sequence[Statement], read_only: bool) -> list[list[Row]]:
        known = [self._operations.get(statement.sql) for statement in statements]
        first = known[0]
        if first is not None and all(each is not None and each.function == first.function for each in known):
            return await self._call(connection, first.function, statements, known, read_only)
        if len(statements) == 1:
            return [await self._fetch(connection, statements[0])]
        if read_only:
            texts = [Statement(self._qualified(sql), params) for sql, params in statements]
            sql, params = one_snapshot(texts)
            row = await connection.fetchrow(sql, *params)
            return [[tuple(each) for each in rows] for rows in row or ()]
        async with connection.transaction():
            return [await self._fetch(connection, statement) for statement in statements]

    async def _call(
        self,
        connection: Connection,
        function: str,
        statements: Sequence[Statement],
        known: Sequence[Any],
        read_only: bool,
    ) -> list[list[Row]]:
        params = [
            each if each is None or each.__class__ is str else str(each)
            for statement in statements
            for each in statement.params
        ]
        call = self._calls[function][read_only]
        answers = await connection.fetchval(call, [each.number for each in known], params)
        return [[tuple(row) for row in decode(text)] if text else [] for text in answers]

    async def _fetch(self, connection: Connection, statement: Statement) -> list[Row]:
        rows = await connection.fetch(numbered(self._qualified(statement.sql)), *statement.params)
        return [tuple(row) for row in rows]

    def _qualified(self, sql: str) -> str:
        if self.schema is None:
            return sql
        found = self._texts.get(sql)
        if found is None:
            if len(self._texts) > 1000:
                self._texts.clear()
            found = self._texts[sql] = qualified(sql, self.schema)
        return found
