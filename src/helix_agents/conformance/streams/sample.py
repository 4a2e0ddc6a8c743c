"""Small functions for the stream checks: named chunks, writing, reading, waiting without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ...streams.contract import StoredChunk, StreamManager, StreamReader, StreamWriter

PATIENCE_SECONDS = 60
"""How long a check waits for something that must happen before it fails."""

T = TypeVar("T")
Seen = list[tuple[int, str]]


def chunk(name: str, **members: Any) -> dict[str, Any]:
    """Return a chunk with a name."""
    return {"type": "text_delta", "delta": name, **members}


def names(prefix: str, count: int, start: int = 0) -> list[str]:
    """Return `prefix.0`, `prefix.1`, ..."""
    return [f"{prefix}.{number}" for number in range(start, start + count)]


def name_of(found: dict[str, Any]) -> str:
    """Return the name given by `chunk`, or the type of a marker."""
    return str(found["delta"]) if found["type"] == "text_delta" else str(found["type"])


async def soon(awaitable: Awaitable[T]) -> T:
    """Return the result; fail if it does not arrive in time."""
    return await asyncio.wait_for(awaitable, PATIENCE_SECONDS)


async def write(manager: StreamManager, stream_id: str, wanted: Iterable[str], *, step: int = 0) -> int:
    """Write chunks with these names through a new writer; return the last sequence."""
    async with await manager.create_writer(stream_id, "run", "agent") as writer:
        for name in wanted:
            await writer.write(chunk(name, step=step))
        return await writer.flush()


async def write_to(writer: StreamWriter, wanted: Iterable[str]) -> int:
    """Write chunks with these names; return the last sequence."""
    for name in wanted:
        await writer.write(chunk(name))
    return await writer.flush()


async def reader_of(manager: StreamManager, stream_id: str, cursor: int | None = None) -> StreamReader:
    """Return a reader that must exist; with a cursor a resumable one."""
    if cursor is None:
        reader = await manager.create_reader(stream_id)
    else:
        reader = await manager.create_resumable_reader(stream_id, from_sequence=cursor)
    if reader is None:
        raise AssertionError(f"there is no reader of stream {stream_id!r}")
    return reader


async def read_all(reader: StreamReader) -> Seen:
    """Return everything until the stream ends."""
    return await soon(_drain(reader))


async def _drain(reader: StreamReader) -> Seen:
    return [(stored.sequence, name_of(stored.chunk)) async for stored in reader.stored()]


async def read_some(reader: StreamReader, count: int) -> Seen:
    """Return exactly this many next chunks."""
    # One timer for all of them: some runtimes limit timers, and count cancelled ones until their time.
    return await soon(_take(reader, count))


async def _take(reader: StreamReader, count: int) -> Seen:
    stored = reader.stored()
    seen: Seen = []
    while len(seen) < count:
        each = await anext(stored)
        seen.append((each.sequence, name_of(each.chunk)))
    return seen


async def kept(manager: StreamManager, stream_id: str) -> Seen:
    """Return what the stream holds now."""
    return named(await manager.get_all_chunks(stream_id))


def named(rows: Sequence[StoredChunk]) -> Seen:
    """Return sequences and names."""
    return [(row.sequence, name_of(row.chunk)) for row in rows]


def numbered(wanted: Sequence[str], first: int = 1) -> Seen:
    """Return the names with dense sequences."""
    return list(enumerate(wanted, start=first))


@asynccontextmanager
async def reading(reader: StreamReader) -> AsyncIterator[asyncio.Task[Seen]]:
    """Yield a task that reads everything in the background and waits for more when the block starts."""
    task = asyncio.create_task(_drain(reader))
    await turns()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reader.close()


async def turns(count: int = 20) -> None:
    """Let other tasks run a little."""
    for _ in range(count):
        await asyncio.sleep(0)
