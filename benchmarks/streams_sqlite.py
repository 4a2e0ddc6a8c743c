"""Streams on SQLite against raw SQLite: `python -m benchmarks.streams_sqlite`.

Raw means the standard library's `sqlite3` with the same pragmas and a table of the same shape: a loop that inserts 16
rows a transaction, and one SELECT in a worker thread (an event loop must not wait for a disk) whose rows are decoded.
Delivery to another process: `paced_delivery.py`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.paced_delivery import STAMPED, chunk, deliver, follow
from benchmarks.pairing import Report, pair_async
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.backends.sql_shared.schema.self_migrating import MigratedDriver
from helix_agents.backends.sqlite.driver import SqliteDriver, Synchronous
from helix_agents.backends.sqlite.stream_manager import SqliteStreamManager

CHUNKS = 20_000
RAW_BATCH = 16

# -- writing


def raw_connection(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS chunks (stream_id TEXT, sequence BIGINT, step BIGINT, created_at BIGINT, "
        "chunk TEXT, PRIMARY KEY (stream_id, sequence)) WITHOUT ROWID"
    )
    return connection


def raw_write(connection: sqlite3.Connection, stream_id: str) -> None:
    for first in range(0, CHUNKS, RAW_BATCH):
        rows = [(stream_id, first + number, 0, 1_700_000_000_000, STAMPED) for number in range(RAW_BATCH)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")


async def our_write(manager: SqliteStreamManager, stream_id: str, count: int = CHUNKS) -> None:
    async with await manager.create_writer(stream_id, "run", "agent") as writer:
        for _ in range(count):
            await writer.write(chunk())


async def writing(report: Report, folder: Path, synchronous: Synchronous) -> None:
    connection = raw_connection(folder / f"raw{synchronous}.db", synchronous)
    manager = SqliteStreamManager(folder / f"ours{synchronous}.db", max_chunks=0, synchronous=synchronous)
    names = iter(range(1000))

    async def raw() -> None:
        raw_write(connection, f"s{next(names)}")

    async def ours() -> None:
        await our_write(manager, f"s{next(names)}")

    paired = await pair_async({"raw": raw, "ours": ours}, rounds=9, warmup=1)
    label = f"synchronous={synchronous}"
    report.line(f"{label}: raw, thousand chunks a second, 16 a batch", CHUNKS / paired.median_ns("raw") * 1e6)
    report.line(f"{label}: ours, thousand chunks a second", CHUNKS / paired.median_ns("ours") * 1e6)
    report.line(f"{label}: throughput of ours over raw", paired.ratio("raw", "ours"), at_least=0.5)
    connection.close()
    await manager.close()


async def counting(report: Report, folder: Path) -> None:
    driver = SqliteDriver(folder / "counted.db")
    await MigratedDriver(driver).migrate()
    manager = SqliteStreamManager(folder / "counted.db", driver=driver)

    async def rows_written() -> int:
        return int((await driver.batch([Statement("SELECT total_changes()")], read_only=True))[0][0][0])

    await our_write(manager, "s", 1)
    before = await rows_written()
    await our_write(manager, "s", 1000)
    report.line("rows written for 1,000 chunks in a burst", await rows_written() - before, at_most=1010)
    writer = await manager.create_writer("s", "run", "agent")
    before = await rows_written()
    for _ in range(100):
        await writer.write(chunk())
        await writer.flush()
    report.line("rows written for 100 chunks, each flushed", await rows_written() - before, at_most=300)
    readers = [await manager.create_reader("s") for _ in range(1000)]
    report.line("subscriptions of 1,000 readers", manager.hub.subscriptions, at_most=1)
    report.line("readers", len(readers))
    await manager.close()
    await driver.close()


# -- resuming


async def resuming(report: Report, folder: Path, total: int) -> None:
    manager = SqliteStreamManager(folder / f"resume{total}.db", max_chunks=0)
    rounds, warmup = 15, 2
    for number in range(rounds + warmup):
        await our_write(manager, f"s{number}", total)
        await manager.end_stream(f"s{number}")
    connection = sqlite3.connect(folder / f"resume{total}.db", isolation_level=None, check_same_thread=False)
    select = "SELECT sequence, chunk FROM __agents_stream_chunks WHERE stream_id = ? AND sequence > ? ORDER BY sequence"
    decode = msgspec.json.Decoder().decode
    # Another stream in every round: nothing of it is in this process yet.
    raw_names, our_names = iter(range(1000)), iter(range(1000))

    def range_read() -> list[tuple[int, str]]:
        return connection.execute(select, (f"s{next(raw_names)}", 15_000)).fetchall()

    async def raw() -> None:
        rows = await asyncio.to_thread(range_read)
        seen = 0
        for _, text in rows:
            decode(text)
            seen += 1
        assert seen == total - 15_000

    async def ours() -> None:
        reader = await manager.create_resumable_reader(f"s{next(our_names)}", from_sequence=15_000)
        assert reader is not None
        seen = 0
        async for _ in reader:
            seen += 1
        assert seen == total - 15_000

    paired = await pair_async({"raw": raw, "ours": ours}, rounds=rounds, warmup=warmup)
    label = f"resume from 15,000 of {total:,}"
    report.line(f"{label}: ms", paired.median_ns("ours") / 1e6)
    report.line(f"{label}: times a raw range read", paired.ratio("ours", "raw"), at_most=1.5)
    connection.close()
    await manager.close()


# -- delivery to another process


async def child(path: str, readers: int) -> None:
    manager = SqliteStreamManager(path)
    await follow(manager, "s", readers)
    await manager.close()


async def delivering(report: Report, folder: Path, readers: int, per_second: int, bound_ms: float) -> None:
    path = folder / f"paced{readers}.db"
    manager = SqliteStreamManager(path)
    other = ("benchmarks.streams_sqlite", "child", str(path), str(readers))
    await deliver(report, manager, "s", other, readers=readers, per_second=per_second, bound_ms=bound_ms)
    await manager.close()


async def main() -> int:
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await writing(report, folder, "NORMAL")
        await writing(report, folder, "FULL")
        await counting(report, folder)
        await resuming(report, folder, 20_000)
        await resuming(report, folder, 16_000)
        await delivering(report, folder, 1, 100, 5.0)
        await delivering(report, folder, 100, 100, 5.0)
        await delivering(report, folder, 1000, 50, 15.0)
    return report.exit_code()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asyncio.run(child(sys.argv[2], int(sys.argv[3])))
        raise SystemExit(0)
    raise SystemExit(asyncio.run(main()))
