"""A Worker that runs the conformance kit inside workerd: one request, one check, one fresh home.

GET /facts              what this Python is, and what the library asked for when it was imported
GET /run/{home}/{name}  run one check; `do` in an object of its own, `d1` in the database, emptied afterwards, `bound`
                        with streams in objects that are reached through their namespace
GET /streams/{verb}/{stream}  look, pour, end, delete, socket
GET /shared, /own       write to a session through a store kept in a module variable, or through one of this request's
GET /replicas           write and read through D1 sessions: one by its constraint, the next by the first one's bookmark
GET /tasks, /hang       what every task of this isolate waits at; wait for a minute
GET /cut                the same after a request that was cut off in the middle
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import js
import msgspec
from workers import DurableObject, Response, WorkerEntrypoint

from helix_agents.backends.cloudflare.bindings import D1Binding, ObjectStorage
from helix_agents.backends.cloudflare.d1 import D1MemoryStore, D1StateStore, D1UsageStore
from helix_agents.backends.cloudflare.durable_object import (
    DOBlobStore,
    DOMemoryStore,
    DOStateStore,
    DOStreamManager,
    DOUsageStore,
)
from helix_agents.backends.cloudflare.stream_server import StreamServer
from helix_agents.backends.cloudflare.streams import DurableObjectStreamManager
from helix_agents.backends.sql_shared.beside import SqlBeside
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sql_shared.streams.manager import SqlStreamManager
from helix_agents.conformance.contracts import DOORS
from helix_agents.conformance.executor.harness import Parts
from helix_agents.conformance.harness import Harness
from helix_agents.conformance.options import Options
from helix_agents.conformance.run import run_check
from helix_agents.errors import SessionExists
from helix_agents.retry import Retry
from helix_agents.state import StepWrites
from helix_agents.stores.state import keyed_lock
from helix_agents.streams.wakeup import Wakeup

CHECKS = {check.name: check for _, registry in DOORS for check in registry.select()}
TABLES = (
    "SELECT type, name FROM sqlite_master WHERE name LIKE '%\\_\\_agents\\_%' ESCAPE '\\' AND type IN ('view', 'table')"
    " AND name NOT LIKE '%\\_index\\_%' ESCAPE '\\' ORDER BY type DESC"
)
kept_in_a_module: list[Any] = []


class Siblings(Wakeup):
    """Managers of one object wake each other directly: there is no other process."""

    everybody: ClassVar[list[Siblings]] = []

    async def start(self, wake: Any) -> None:
        self.wake = wake
        self.everybody.append(self)

    def announce(self, stream_id: str) -> None:
        for each in self.everybody:
            if each is not self:
                each.wake(stream_id)

    async def close(self) -> None:
        if self in self.everybody:
            self.everybody.remove(self)


class Home(Harness):
    """The data of one check, opened as often as needed."""

    name = "workerd"
    declared = frozenset({"T2.large_chunk"})

    def __init__(self) -> None:
        super().__init__()
        self.managers: list[SqlStreamManager] = []

    def driver(self) -> Any:
        raise NotImplementedError

    async def reopen(self) -> Any:
        return await self.open()

    async def open_stores(self) -> Parts:
        streams: Any = await self.open_streams()
        usage: Any = await self.open_usage()
        return Parts(self.state_beside(SqlBeside(streams, usage)), streams, usage)

    def state_beside(self, beside: SqlBeside) -> Any:
        raise NotImplementedError

    def stream_child_spec(self) -> None:
        return None

    async def _rows(self, *sql: str) -> list[Any]:
        return await self.driver().batch([Statement(each) for each in sql])

    async def traces(self, session_id: str) -> list[str]:
        (found,) = await self._rows(TABLES)
        names = [name for kind, name in found if kind == "table" and not name.endswith("_index")]
        tables = await self._rows(*(f'SELECT * FROM "{name}"' for name in names))
        return [
            f"{name}: {row!r:.200}"
            for name, rows in zip(names, tables, strict=True)
            for row in rows
            if any(session_id in str(value) for value in row)
        ]

    async def stored_bytes(self) -> int:
        driver = self.driver()
        await driver.batch([Statement("SELECT 1 AS one")])
        return int(driver.size_bytes)

    async def pretend_newer_schema(self) -> Any:
        await self._rows("INSERT INTO __agents_migrations VALUES (9999, 'from the future', 0)")

        async def undo() -> None:
            await self._rows("DELETE FROM __agents_migrations WHERE version = 9999")

        return undo

    async def dispose(self) -> None:
        for manager in self.managers:
            await manager.close()
        (found,) = await self._rows(TABLES)
        if found:
            await self._rows(*(f'DROP {kind} IF EXISTS "{name}"' for kind, name in found))


def in_an_object(ctx: Any) -> type[Home]:
    class ObjectHome(Home):
        def driver(self) -> ObjectStorage:
            return ObjectStorage(ctx.storage)

        async def open(self) -> Any:
            return DOStateStore(ctx)

        def state_beside(self, beside: SqlBeside) -> Any:
            return DOStateStore(ctx, beside=beside)

        async def open_neighbour(self) -> Any:
            return DOStateStore(ctx, prefix="other_")

        async def open_streams(self, **options: Any) -> Any:
            self.managers.append(DOStreamManager(ctx, wakeup=Siblings(), **options))
            return self.managers[-1]

        async def open_usage(self) -> Any:
            return DOUsageStore(ctx)

        async def open_memory(self, *, embedder: Any = None) -> Any:
            return DOMemoryStore(ctx, embedder=embedder)

        async def open_blobs(self, *, max_bytes: int | None = None) -> Any:
            limit: dict[str, Any] = {} if max_bytes is None else {"max_bytes": max_bytes}
            return DOBlobStore(ctx, **limit)

    return ObjectHome


def in_d1(database: Any) -> type[Home]:
    class D1Home(Home):
        def driver(self) -> D1Binding:
            return D1Binding(database)

        async def open(self) -> Any:
            return D1StateStore(database)

        def state_beside(self, beside: SqlBeside) -> Any:
            return D1StateStore(database, beside=beside)

        async def open_neighbour(self) -> Any:
            return D1StateStore(database, prefix="other_")

        async def open_streams(self, **options: Any) -> Any:
            driver = MigratedDriver(D1Binding(database), families={"streams"})
            self.managers.append(SqlStreamManager(driver, wakeup=Siblings(), **options))
            return self.managers[-1]

        async def open_usage(self) -> Any:
            return D1UsageStore(database)

        async def open_memory(self, *, embedder: Any = None) -> Any:
            return D1MemoryStore(database, embedder=embedder)

    return D1Home


def in_stream_objects(env: Any) -> type[Home]:
    """Return sessions in D1, streams in objects that are reached through their namespace."""
    prefix = os.urandom(6).hex()

    class BoundHome(in_d1(env.DB)):  # type: ignore[misc]
        async def open_streams(self, **options: Any) -> Any:
            self.managers.append(DurableObjectStreamManager(env.STREAMS, prefix=prefix, **options))
            return self.managers[-1]

    return BoundHome


async def outcome(name: str, home: type[Home], steps: str) -> str:
    """Return the result of a check, as JSON."""
    began = time.time()
    try:
        result = await run_check(CHECKS[name], home, replace(Options(), steps=int(steps)))
        trace = "".join(traceback.format_exception(result.error)[-12:]) if result.error else ""
        told = {"outcome": result.outcome, "detail": result.detail, "trace": trace}
    except BaseException as error:
        told = {"outcome": "failed", "detail": repr(error), "trace": traceback.format_exc()}
    return msgspec.json.encode({"name": name, **told, "seconds": time.time() - began}).decode()


def _waits_at(task: asyncio.Task[Any]) -> str:
    """Return where a task is suspended, outermost call first."""
    places: list[str] = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        waiting = getattr(waiting, "cr_await", None)
    return f"{task.get_name()}: {' > '.join(places)}"


class Streams(StreamServer):
    """Holds the streams of checks. `born` differs after an object restarts."""

    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)
        self.born = os.urandom(3).hex()

    async def fetch(self, request: Any) -> Any:
        if request.url.endswith("/look"):
            alarm = await self.ctx.storage.getAlarm()
            facts = {"born": self.born, "empty": self.storage.is_empty(), "alarm": alarm or None}
            return Response.json({**facts, "sockets": len(self.ctx.getWebSockets())})
        return await super().fetch(request)


class Checks(DurableObject):  # type: ignore[misc]
    def __init__(self, ctx: Any, env: Any) -> None:
        super().__init__(ctx, env)

    async def run(self, name: str, steps: str) -> str:
        return await outcome(name, in_an_object(self.ctx), steps)


class Default(WorkerEntrypoint):  # type: ignore[misc]
    async def fetch(self, request: Any) -> Any:
        path = unquote(urlsplit(request.url).path).split("/")[1:]
        if path[0] == "facts":
            facts = {
                "python": sys.version,
                "entropy_at_import": js.entropyAtImport,
                "heap_bytes": js.pythonHeapBytes(),
                "sqlite3": "sqlite3" in sys.modules,
            }
            return Response.json(facts)
        if path[0] == "tasks":
            return Response.json([_waits_at(task) for task in asyncio.all_tasks()])
        if path[0] == "hang":
            return Response.json(await asyncio.sleep(60))
        if path[0] == "run" and path[1] in ("d1", "bound"):
            home = in_d1(self.env.DB) if path[1] == "d1" else in_stream_objects(self.env)
            return Response(await outcome(path[2], home, path[3]))
        if path[0] == "streams":
            return await self._streams(path[1], path[2], request)
        if path[0] == "run":
            return Response(await self.env.CHECKS.getByName(path[2]).run(path[2], path[3]))
        if path[0] == "replicas":
            return Response.json(await _through_sessions(self.env.DB, path[1]))
        if path[0] == "own":
            return await self._write(D1StateStore(self.env.DB), path[1])
        if path[0] in ("shared", "cut"):
            if not kept_in_a_module:
                kept_in_a_module.append(D1StateStore(self.env.DB))
            store = kept_in_a_module[0]
            if path[0] == "cut":
                vars(keyed_lock)["TURN"] = Retry(first_seconds=0.005, longest_seconds=0.005, within_seconds=0.1)
                await store._locks.take(path[1])  # and never releases it
            return await self._write(store, path[1])
        return Response("not found", status=404)

    async def _streams(self, verb: str, stream_id: str, request: Any) -> Any:
        """Operate on a stream with a manager of this request, as a Worker does."""
        query = {name: texts[0] for name, texts in parse_qs(urlsplit(request.url).query).items()}
        manager = DurableObjectStreamManager(self.env.STREAMS, ttl=int(query.get("ttl", 86_400)))
        if verb == "look":
            stub = self.env.STREAMS.getByName(f"stream::{stream_id}")
            return (await stub.fetch("https://stream.internal/look")).js_object
        if verb == "socket":
            follow = query.get("follow") == "true"
            return await manager.websocket(stream_id, from_sequence=int(query.get("from", 0)), follow=follow)
        if verb == "pour":
            writer = await manager.create_writer(stream_id, "run", "a")
            for number in range(int(query["n"])):
                await writer.write({"type": "text_delta", "delta": str(number)})
            await writer.close()
        if verb == "end":
            await manager.end_stream(stream_id, "done")
        if verb == "delete":
            await manager.delete_stream(stream_id)
        info = await manager.get_stream_info(stream_id)
        await manager.close()
        return Response.json({"latest": None if info is None else info.latest_sequence, "rows": manager.rows_written})

    async def _write(self, store: D1StateStore, session_id: str) -> Any:
        try:
            with suppress(SessionExists):
                await store.create_session(session_id, agent_type="a", custom_state={"n": 0})
            await store.merge_custom_state(session_id, StepWrites([{"kind": "increment", "path": ["n"], "by": 1}]))
            state = await store.load_state(session_id)
            assert state is not None
            return Response.json({"n": state.custom_state["n"]})
        except Exception as error:
            return Response.json({"error": f"{type(error).__name__}: {error}"}, status=500)


async def _through_sessions(database: Any, session_id: str) -> dict[str, Any]:
    first = D1StateStore(database, session="first-primary")
    before = first.bookmark
    await first.create_session(session_id, agent_type="a", custom_state={"n": 1})
    again = D1StateStore(database, session=first.bookmark)
    state = await again.load_state(session_id)
    assert state is not None
    plain = D1StateStore(database)
    return {"before": before, "bookmark": first.bookmark, "n": state.custom_state["n"], "plain": plain.bookmark}
