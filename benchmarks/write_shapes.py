"""The commit that ends a step, for every shape of work that tools do, against storage written by hand for that shape.

    python -m benchmarks.write_shapes [memory] [sqlite] ... [--steps 120]

A fast commit for one shape of work is worth little: most tools assign. Timed is the commit alone; what tools wrote is
staged before it, as in a real run. A step always brings three messages and a checkpoint. By hand the same session row,
messages, values, items and checkpoint are written in one transaction, with no staging, no history and no validation.
All lines are printed, losses too. A further backend joins by its line in `BACKENDS`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from redis.asyncio import Redis

from benchmarks import machine
from benchmarks.by_hand import grow_log
from benchmarks.pairing import Paired, Report, pair_async
from benchmarks.redis_by_hand import RedisShapeByHand
from benchmarks.workload import Step, now_ms, steps
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.redis.sessions.store import RedisStateStore
from helix_agents.backends.sqlite.state_store import SqliteStateStore
from helix_agents.state import StateTracker
from helix_agents.stores.state.contract import StateStore
from helix_agents.types import CheckpointMeta, SessionState
from tests.servers.redis_server import VALKEY_9, RedisServer

SESSION = "session-0001"
START: dict[str, Any] = {"n": 0, "text": "", "about": {"a": 1}, "small": [], "items": []}
WARMUP = 5


class Writes(NamedTuple):
    """What a step comes to: values by key, members by key and name, and an item for the list or none."""

    values: Mapping[str, Any] = MappingProxyType({})
    members: Mapping[tuple[str, str], Any] = MappingProxyType({})
    items: tuple[Any, ...] = ()


class Shape(NamedTuple):
    """One shape of work: what each tool of a step does to its draft, and what that comes to."""

    name: str
    change: Callable[[Any, Step, int], None]
    by_hand: Callable[[Step], Writes]
    tools: int = 1


def _nothing(draft: Any, step: Step, tool: int) -> None:
    """A tool that only answers."""


def _count_and_append(draft: Any, step: Step, tool: int) -> None:
    draft.increment("n")
    draft["items"].append(step.item)


def _assign_and_append(draft: Any, step: Step, tool: int) -> None:
    draft["n"] = step.number
    draft["items"].append(step.item)


def _assign_text(draft: Any, step: Step, tool: int) -> None:
    draft["text"] = step.item["text"]


def _assign_object(draft: Any, step: Step, tool: int) -> None:
    draft["about"] = {"a": step.number, "b": "text", "c": [1, 2]}


def _set_member(draft: Any, step: Step, tool: int) -> None:
    draft["about"]["a"] = step.number


def _assign_list(draft: Any, step: Step, tool: int) -> None:
    draft["small"] = [step.number, "two", 3]


def _three(draft: Any, step: Step, tool: int) -> None:
    draft[f"n{tool}"] = step.number
    draft["items"].append(step.item)


SHAPES = (
    Shape("increment + append", _count_and_append, lambda step: Writes({"n": step.number}, items=(step.item,))),
    Shape("nothing", _nothing, lambda step: Writes()),
    Shape("assign a number + append", _assign_and_append, lambda step: Writes({"n": step.number}, items=(step.item,))),
    Shape("assign a text", _assign_text, lambda step: Writes({"text": step.item["text"]})),
    Shape(
        "assign an object",
        _assign_object,
        lambda step: Writes({"about": {"a": step.number, "b": "text", "c": [1, 2]}}),
    ),
    Shape("set a member of an object", _set_member, lambda step: Writes(members={("about", "a"): step.number})),
    Shape("assign a small list", _assign_list, lambda step: Writes({"small": [step.number, "two", 3]})),
    Shape(
        "three tools, each assigns and appends",
        _three,
        lambda step: Writes({f"n{tool}": step.number for tool in range(3)}, items=(step.item,) * 3),
        tools=3,
    ),
)


class ByHand(Protocol):
    """Storage written by hand: one transaction a step, the session at `version` before it."""

    async def commit(self, step: Step, writes: Writes, version: int) -> None: ...


class Contest(NamedTuple):
    """A store of ours, and two of the same storage by hand: what they differ by is the error of the measurement."""

    ours: StateStore
    by_hand: ByHand
    by_hand_again: ByHand


Opening = Callable[[Path], AbstractAsyncContextManager[Contest]]


class Backend(NamedTuple):
    """How to open a contest, and the bars: for every shape, and for three tools."""

    open: Opening
    bar: float
    bar_of_three: float = 2.2


_SCHEMA = """
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, step_count INTEGER NOT NULL, version INTEGER NOT NULL,
  message_count INTEGER NOT NULL, item_count INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE messages (session_id TEXT NOT NULL, sequence INTEGER NOT NULL, message TEXT NOT NULL,
  PRIMARY KEY (session_id, sequence));
CREATE TABLE cells (session_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (session_id, key));
CREATE TABLE items (session_id TEXT NOT NULL, position INTEGER NOT NULL, item TEXT NOT NULL,
  PRIMARY KEY (session_id, position));
CREATE TABLE checkpoints (session_id TEXT NOT NULL, version INTEGER NOT NULL, checkpoint_id TEXT NOT NULL,
  step_count INTEGER NOT NULL, message_count INTEGER NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (session_id, version));
"""


class SqliteByHand:
    """One `BEGIN IMMEDIATE ... COMMIT` a step, on the calling thread."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=FULL")
        self.database.executescript(_SCHEMA)
        self.database.execute("INSERT INTO sessions VALUES (?, 0, 1, 0, 0, ?)", (SESSION, now_ms()))

    async def commit(self, step: Step, writes: Writes, version: int) -> None:
        execute, many = self.database.execute, self.database.executemany
        now = now_ms()
        execute("BEGIN IMMEDIATE")
        ((count, items),) = execute(
            "UPDATE sessions SET step_count = ?, version = version + 1, message_count = message_count + ?, "
            "item_count = item_count + ?, updated_at = ? WHERE session_id = ? AND version = ? "
            "RETURNING message_count, item_count",
            (step.number, len(step.messages), len(writes.items), now, SESSION, version),
        ).fetchall()
        first = count - len(step.messages)
        many(
            "INSERT INTO messages VALUES (?, ?, ?)",
            [(SESSION, first + place, json.dumps(message)) for place, message in enumerate(step.messages)],
        )
        cells = [(SESSION, key, json.dumps(value)) for key, value in writes.values.items()]
        cells += [(SESSION, f"{key}.{name}", json.dumps(value)) for (key, name), value in writes.members.items()]
        if cells:
            upsert = "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
            many(upsert, cells)
        if writes.items:
            start = items - len(writes.items)
            many(
                "INSERT INTO items VALUES (?, ?, ?)",
                [(SESSION, start + place, json.dumps(item)) for place, item in enumerate(writes.items)],
            )
        execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)",
            (SESSION, version + 1, f"cp-{SESSION}-{step.number}-{now}", step.number, count, now),
        )
        execute("COMMIT")


class DictByHand:
    """A dictionary with one JSON text a commit: what was written, and the fields of the session."""

    def __init__(self) -> None:
        self.version = 1
        self.state: dict[str, Any] = {"items": []}
        self.log: list[tuple[str, str]] = []

    async def commit(self, step: Step, writes: Writes, version: int) -> None:
        if self.version != version:
            raise ValueError("another writer was faster")
        self.state.update(writes.values)
        self.state["items"].extend(writes.items)
        fields = {"session_id": SESSION, "status": "active", "step_count": step.number, "updated_at": now_ms()}
        named = {".".join(name): value for name, value in writes.members.items()}
        text = json.dumps(
            {"session": fields, "wrote": [dict(writes.values), named, writes.items], "said": step.messages}
        )
        self.version += 1
        self.log.append((f"cp-{SESSION}-{step.number}", text))


@asynccontextmanager
async def open_sqlite(folder: Path) -> AsyncIterator[Contest]:
    store = SqliteStateStore(folder / "ours.db")
    await store.session_exists(SESSION)
    by_hand = [SqliteByHand(folder / f"by-hand-{number}.db") for number in (1, 2)]
    for name in ("ours", "by-hand-1", "by-hand-2"):
        grow_log(folder / f"{name}.db")
    yield Contest(store, *by_hand)
    await store.close()
    for each in by_hand:
        each.database.close()


@asynccontextmanager
async def open_memory(folder: Path) -> AsyncIterator[Contest]:
    yield Contest(InMemoryStateStore(), DictByHand(), DictByHand())


@asynccontextmanager
async def open_redis(folder: Path) -> AsyncIterator[Contest]:
    with RedisServer(VALKEY_9, options=("--appendonly", "no")) as server:
        client = Redis.from_url(server.url)
        by_hand = [await RedisShapeByHand(client, f"by-hand-{number}").create() for number in (1, 2)]
        store = RedisStateStore(client)
        yield Contest(store, *by_hand)
        await store.close()
        await client.aclose()


BACKENDS: dict[str, Backend] = {
    "memory": Backend(open_memory, bar=3.0, bar_of_three=4.0),
    "sqlite": Backend(open_sqlite, bar=1.9),
    "redis": Backend(open_redis, bar=1.4),
}


def _changing(shape: Shape, step: Step, tool: int, draft: Any) -> None:
    shape.change(draft, step, tool)


async def measured(shape: Shape, contest: Contest, count: int) -> Paired:
    """The commits of one session, ours and by hand in turns on the same steps."""
    start = START | {f"n{tool}": 0 for tool in range(shape.tools)}
    created = await contest.ours.create_session(SESSION, agent_type="benchmark", custom_state=start)
    fields = SessionState(SESSION, "benchmark", created.stream_id, created_at=created.created_at)
    trackers = [StateTracker(start) for _ in range(shape.tools)]
    every = steps(count + WARMUP)
    step: Step
    writes: Writes

    async def prepare() -> None:
        nonlocal step, writes
        step = next(every)
        writes = shape.by_hand(step)
        for tool, tracker in enumerate(trackers):
            tracker.reset_tracking()
            tracker.update(partial(_changing, shape, step, tool))
            wrote, call = tracker.get_step_writes(), f"call-{tool}"
            await contest.ours.stage_changes(SESSION, f"step-{step.number}", wrote, tool_call_id=call, index=tool)

    async def ours() -> None:
        meta = CheckpointMeta(f"step-{step.number}", step.number, step.number * 10)
        await contest.ours.save_state_and_promote_staging(
            SESSION, fields, step.messages, meta, expected_version=step.number
        )

    def by_hand(storage: ByHand) -> Callable[[], Awaitable[object]]:
        return lambda: storage.commit(step, writes, step.number)

    contestants: Mapping[str, Callable[[], Awaitable[object]]] = {
        "ours": ours,
        "by hand": by_hand(contest.by_hand),
        "by hand again": by_hand(contest.by_hand_again),
    }
    return await pair_async(contestants, rounds=count, warmup=WARMUP, before=prepare)


async def main(names: list[str], count: int) -> int:
    report = Report()
    print(machine.describe())
    for name in names:
        backend = BACKENDS[name]
        for shape in SHAPES:
            with TemporaryDirectory() as folder:
                async with backend.open(Path(folder)) as contest:
                    paired = await measured(shape, contest, count)
            bar = backend.bar if shape.tools == 1 else backend.bar_of_three
            report.line(f"{name}: {shape.name}", paired.ratio("ours", "by hand"), at_most=bar)
            ours, raw, again = (paired.median_ns(each) / 1000 for each in paired.samples)
            print(f"       ours {ours:.0f} us, by hand {raw:.0f} us, again {again:.0f} us")
    return report.exit_code()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help=f"any of {', '.join(BACKENDS)}; all by default")
    parser.add_argument("--steps", type=int, default=120)
    chosen = parser.parse_args()
    if unknown := set(chosen.backends) - set(BACKENDS):
        parser.error(f"unknown backend {', '.join(sorted(unknown))}: choose from {', '.join(BACKENDS)}")
    sys.exit(asyncio.run(main(chosen.backends or list(BACKENDS), chosen.steps)))
