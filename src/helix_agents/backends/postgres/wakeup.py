"""Wake-ups between processes on one Postgres: NOTIFY names a changed stream, readers read the rows.

One connection per process listens. A process that has changed a stream notifies after its commit, many streams at a
time and in a transaction of its own: inside the writing transaction, NOTIFY would make all commits of the database
queue up behind one lock. A process may die in between, or a connection may be lost silently, so once a second the
listening connection also reads the heads of the streams with readers here: that finds missed changes and detects
a dead connection.

Where listening is impossible (behind a transaction-mode pooler, without `listen_dsn`), the heads are polled
continuously, as long as there are readers.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from ...codec import decode, encode
from ...errors import StoreError
from ...retry import RECONNECT, TRANSIENT
from ...streams import loops
from ...streams.wakeup import Wake, Wakeup
from ..sql_shared.driver import Statement
from ..sql_shared.queries import with_prefix
from .dialect import qualified
from .driver import PostgresDriver
from .driver_errors import raise_translated

if TYPE_CHECKING:
    from .prepare import AnyConnection

LOOK_EVERY_SECONDS = 1.0
LOOK_OFTEN_SECONDS = 0.025
LOOK_TIMEOUT_SECONDS = 5.0
ANNOUNCE_EVERY_SECONDS = 0.001
MAX_PAYLOAD_BYTES = 7_500
"""The longest payload we send; Postgres accepts 8,000 bytes."""

_NOTIFY = (
    "SELECT count(pg_notify($1::text, payload)) FROM unnest($2::text[]) AS payload, "
    # Nothing is lost if this commit is: waiting for the disk would only make it late.
    "(SELECT set_config('synchronous_commit', 'off', true) OFFSET 0) AS quick"
)


class PostgresWakeup(Wakeup):
    """The wake-up source of one manager."""

    def __init__(self, driver: PostgresDriver, *, listen_dsn: str | None = None, can_listen: bool = True) -> None:
        self._driver = driver
        self._listen_dsn = listen_dsn
        self._can_listen = can_listen
        digest = hashlib.blake2b(f"{driver.schema or ''} {driver.prefix}".encode(), digest_size=8).hexdigest()
        self._channel = f"helix_streams_{digest}"
        self._token = secrets.token_hex(4)
        table = with_prefix("__agents_streams", driver.prefix)
        columns = "stream_id, incarnation, latest_sequence, revision"
        self._heads = f"SELECT {columns} FROM {table} WHERE stream_id = ANY (?1)"
        self._watched: dict[str, tuple[Any, ...] | None] = {}
        self._someone = asyncio.Event()
        self._lost = asyncio.Event()
        self._wake: Wake = _nobody
        self._connection: AnyConnection | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed: set[str] = set()
        self._announcing: asyncio.Task[None] | None = None

    async def start(self, wake: Wake) -> None:
        self._wake = wake
        if self._can_listen:
            try:
                await self._listen()
            except Exception as error:
                await self._drop()
                raise_translated(error)
        self._watching = asyncio.get_running_loop().create_task(self._keep_watching())

    def watch(self, stream_id: str) -> None:
        self._watched[stream_id] = None
        self._someone.set()

    def unwatch(self, stream_id: str) -> None:
        self._watched.pop(stream_id, None)
        if not self._watched:
            self._someone.clear()

    def announce(self, stream_id: str) -> None:
        self._changed.add(stream_id)
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.get_running_loop().create_task(self._announce())

    async def close(self) -> None:
        if self._watching is not None:
            await loops.end([self._watching])
        if self._announcing is not None:
            await loops.wait_for([self._announcing])
        await self._drop()

    # -- telling

    async def _announce(self) -> None:
        """Announce all changes; those that arrive in the meantime go out with the next message."""
        while self._changed:
            changed, self._changed = self._changed, set()
            payloads = [*_payloads(self._token, changed)]
            for attempt in TRANSIENT.attempts():
                try:
                    await self._driver.call(_NOTIFY, [self._channel, payloads])
                    break
                except StoreError:
                    # Listeners find out by themselves within a second or two; this only makes it sooner.
                    await asyncio.sleep(TRANSIENT.delay_seconds(attempt))
            await asyncio.sleep(ANNOUNCE_EVERY_SECONDS)

    # -- hearing

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        token, *stream_ids = decode(str(payload))
        if token != self._token:  # this manager has woken its own readers already
            for stream_id in stream_ids:
                self._wake(stream_id)

    async def _listen(self) -> None:
        if self._listen_dsn is not None:
            self._connection = await asyncpg.connect(self._listen_dsn, timeout=LOOK_TIMEOUT_SECONDS)
        else:
            self._connection = await self._driver.pool.acquire(timeout=LOOK_TIMEOUT_SECONDS)
        self._lost.clear()
        self._connection.add_termination_listener(self._on_loss)
        await self._connection.add_listener(self._channel, self._heard)

    def _on_loss(self, _connection: object) -> None:
        self._lost.set()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(Exception):
            connection.remove_termination_listener(self._on_loss)
            if not connection.is_closed():
                async with asyncio.timeout(LOOK_TIMEOUT_SECONDS):
                    await connection.remove_listener(self._channel, self._heard)
        with suppress(Exception):
            if self._listen_dsn is None:
                await self._driver.pool.release(connection)  # type: ignore[arg-type]  # it is of the pool
            elif not connection.is_closed():
                await connection.close(timeout=LOOK_TIMEOUT_SECONDS)

    async def _keep_watching(self) -> None:
        while True:
            try:
                if self._can_listen:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_SECONDS):
                            await self._lost.wait()
                    if self._lost.is_set():
                        raise ConnectionError("the listening connection is gone")
                else:
                    await asyncio.sleep(LOOK_OFTEN_SECONDS)
                    await self._someone.wait()
                self._compare(await self._look())
            except Exception:  # whatever it was: the remedy is a new connection
                if self._can_listen:
                    await self._listen_again()
                else:
                    await asyncio.sleep(RECONNECT.longest_seconds)

    async def _listen_again(self) -> None:
        await self._drop_broken()
        for attempt in itertools.count():
            try:
                await self._listen()
                break
            except Exception:
                await self._drop_broken()
                await asyncio.sleep(RECONNECT.delay_seconds(attempt))
        self._wake(None)  # what has been missed is unknown

    async def _drop_broken(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # the pool may have taken it back already
                self._connection.terminate()
        await self._drop()

    async def _look(self) -> list[Any]:
        """Return the heads of the streams that have readers here."""
        watched = [*self._watched]
        if not self._can_listen:
            found = await self._driver.batch([Statement(self._heads, (watched,))], read_only=True)  # type: ignore[arg-type]
            return found[0]
        assert self._connection is not None
        sql = qualified(self._heads, self._driver.schema).replace("?1", "$1")
        return list(await self._connection.fetch(sql, watched, timeout=LOOK_TIMEOUT_SECONDS))

    def _compare(self, heads: list[Any]) -> None:
        """Wake the readers of streams that have changed since the last check; no other reader reads anything."""
        found = {head[0]: tuple(head) for head in heads}
        for stream_id, seen in list(self._watched.items()):
            now = found.get(stream_id, ())
            if now != seen:
                self._watched[stream_id] = now
                self._wake(stream_id)


def _payloads(token: str, stream_ids: set[str]) -> list[str]:
    parts: list[list[str]] = []
    room = 0
    for stream_id in stream_ids:
        size = len(encode(stream_id).encode()) + 1
        if size > room:
            parts.append([token])
            room = MAX_PAYLOAD_BYTES
        parts[-1].append(stream_id)
        room -= size
    return [encode(part) for part in parts]


def _nobody(_stream_id: str | None) -> None:
    """Ignore changes until a reader listens."""
