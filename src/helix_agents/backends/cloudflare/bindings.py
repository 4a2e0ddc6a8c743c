"""Drivers inside a Python Worker, on `env.DB` and `ctx.storage`. Imported only there, since `js` exists nowhere else.

Crossing to JavaScript is what costs: a statement crosses once or twice, and the rows of a batch come back as one JSON
text. Nothing here needs `eval`, threads or a suspended stack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from js import JSON, Object
from pyodide.ffi import JsException, create_once_callable, jsnull, to_js

from ...codec import decode
from ...errors import InvalidArgument
from ..sql_shared.driver import Row, Statement, Value
from ..sql_shared.schema.self_migrating import MigratedDriver
from .wire import CloudflareDriver, Reply, WireStatement, WireValue, refusal, to_wire, wire_value

T = TypeVar("T")

_ANY_TABLE = r"SELECT 1 FROM sqlite_master WHERE name LIKE '%\_\_agents\_%' ESCAPE '\' LIMIT 1"


def unwrapped(binding: Any) -> Any:
    """Return the JavaScript object behind what `workers-runtime-sdk` wraps; a bare one is left as it is."""
    return getattr(binding, "_binding", binding)


def ensure_binding(binding: Any, *methods: str, is_not: str, hint: str) -> Any:
    """Return the JavaScript object behind a binding. Raises `InvalidArgument` if it is missing or of another kind."""
    found = unwrapped(binding)
    if not all(hasattr(found, method) for method in methods):
        kind = getattr(getattr(found, "constructor", None), "name", None) or type(found).__name__
        given = "None" if found is None else f"A {kind}"
        raise InvalidArgument(f"{given} is not {is_not}. {hint}")
    return found


def js_options(value: Mapping[str, Any]) -> Any:
    """Return a nested dict as the plain object that JavaScript expects for options."""
    return to_js(value, dict_converter=Object.fromEntries)


def _bound(params: Sequence[WireValue]) -> list[Any]:
    return [jsnull if value is None else value for value in params]


class D1Binding(CloudflareDriver):
    """`SqlDriver` on `env.DB`. `session`: use a D1 session, which may read from replicas."""

    def __init__(self, database: Any, *, session: str | None = None) -> None:
        super().__init__()
        self._is_session = session is not None
        self._database = ensure_binding(
            database,
            "prepare",
            "batch",
            is_not="a D1 database",
            hint='Inside a Worker pass the binding that wrangler.jsonc names under "d1_databases", for example env.DB.',
        )
        if session is not None:
            self._database = self._database.withSession(session)

    @property
    def bookmark(self) -> str | None:
        """How far this session has read; None before its first query, or without a session."""
        found = self._database.getBookmark() if self._is_session else None
        return str(found) if found else None

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        prepared = []
        for sql, params in batch:
            statement = self._database.prepare(sql)
            prepared.append(statement.bind(*_bound(params)) if params else statement)
        try:
            answer = decode(JSON.stringify(await self._database.batch(to_js(prepared))))
        except JsException as error:
            raise refusal(str(error)) from error
        metas = [each["meta"] for each in answer]
        return Reply(
            [[row.values() for row in each["results"]] for each in answer],
            sum(meta.get("rows_written", 0) for meta in metas),
            sum(meta.get("rows_read", 0) for meta in metas),
            metas[-1].get("size_after", 0),
        )


class ObjectStorage(CloudflareDriver):
    """`SqlDriver` on `ctx.storage`. A batch is one synchronous transaction: no other code runs during it."""

    def __init__(self, storage: Any) -> None:
        super().__init__()
        self._storage = unwrapped(storage)
        self._sql = self._storage.sql
        self._has_tables = False
        self._migrated: list[MigratedDriver] = []

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        return self.batch_now(statements)

    async def _send(self, batch: list[WireStatement], *, read_only: bool) -> Reply:
        return Reply(self.transaction(lambda: [self._rows(sql, params) for sql, params in batch]))

    def batch_now(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run a batch like `batch`, but synchronously."""
        if not statements:
            return []
        ready = [to_wire(each) for each in statements]
        if len(ready) == 1:  # a statement alone is a transaction already
            return [self._run(lambda: self._rows(*ready[0]))]
        return self.transaction(lambda: [self._rows(sql, params) for sql, params in ready])

    def execute(self, sql: str, params: Sequence[Value] = ()) -> list[Row]:
        """Run one statement inside `transaction`."""
        if "?1" in sql:
            return self._rows(*to_wire(Statement(sql, tuple(params))))
        # Parameters without numbers: what is an integer goes into a column that makes it one, or comes back as it is.
        return self._rows(sql, [value if isinstance(value, int) else wire_value(value) for value in params])

    def transaction(self, work: Callable[[], T]) -> T:
        """Run `work` in a transaction, which an exception undoes."""
        raised: list[BaseException] = []
        returned: list[T] = []

        def inside() -> None:
            try:
                returned.append(work())
            except BaseException as error:
                raised.append(error)
                raise

        try:
            self._storage.transactionSync(create_once_callable(inside))
        except JsException as error:
            # What was raised inside has been to JavaScript and back; the original says more.
            cause = raised[0] if raised else error
            raise (refusal(str(cause)) if isinstance(cause, JsException) else cause) from error
        return returned[0]

    def exchange(self, batch: Sequence[WireStatement]) -> Reply:
        """Run another driver's batch as a transaction; return its rows and cost."""
        written, read = self.rows_written, self.rows_read
        results = self.transaction(lambda: [self._rows(sql, params) for sql, params in batch])
        return Reply(results, self.rows_written - written, self.rows_read - read, self.size_bytes)

    def is_empty(self) -> bool:
        """Return whether nothing of ours was ever stored here. Reads only: it must not create anything."""
        self._has_tables = self._has_tables or bool(self._rows(_ANY_TABLE, ()))
        return not self._has_tables

    def tables(self, families: Collection[str], *, prefix: str = "") -> MigratedDriver:
        """Return this driver for a store that needs these tables: they are created on first use."""
        made = MigratedDriver(self, prefix=prefix, families=families)
        self._migrated.append(made)
        return made

    async def empty(self) -> None:
        """Remove everything, the alarm as well. An empty object costs nothing."""
        self._has_tables = False
        for driver in self._migrated:
            driver.ready = False
        await self._storage.deleteAlarm()
        await self._storage.deleteAll()

    def remember(self, name: str, value: int) -> None:
        """Store a number beside the tables."""
        self._storage.kv.put(name, value)

    def recall(self, name: str, default: int) -> int:
        """Return a number that `remember` stored."""
        found = self._storage.kv.get(name)
        return default if found is None or found is jsnull else int(found)

    async def wake_by(self, epoch_ms: int) -> None:
        """Set the object's alarm, unless an earlier one is set: an alarm that is always postponed never fires."""
        found = await self._storage.getAlarm()
        if found is None or found is jsnull or found > epoch_ms:
            await self._storage.setAlarm(epoch_ms)

    def _run(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except JsException as error:
            raise refusal(str(error)) from error

    def _rows(self, sql: str, params: Sequence[WireValue]) -> list[Row]:
        cursor = self._sql.exec(sql, *_bound(params))
        rows = [tuple(row) for row in decode(JSON.stringify(cursor.raw().toArray()))]
        self.rows_written += cursor.rowsWritten
        self.rows_read += cursor.rowsRead
        self.size_bytes = self._sql.databaseSize
        return rows
