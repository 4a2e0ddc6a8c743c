"""Random operations against a plain list: every read of a stream agrees after every step."""

from __future__ import annotations

import asyncio
import random

from ...errors import IllegalTransition, StreamNotActive
from ...streams.contract import StreamManager
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import Seen, chunk, named, read_all, reader_of, soon, write

check = STREAM_MANAGER.check

Row = tuple[int, int, str]


class Model:
    """What one stream must look like: rows of sequence, step, name."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.latest = 0
        self.status = "active"

    def append(self, name: str, step: int) -> None:
        self.latest += 1
        self.rows.append((self.latest, step, name))

    def seen(self, cursor: int = 0, from_step: int = 0) -> Seen:
        return [(sequence, name) for sequence, step, name in self.rows if sequence > cursor and step >= from_step]


@check("T7", "random writes, rewinds, resets, pauses and ends agree with a plain list", kind="random")
async def random_walk(harness: Harness) -> None:
    for walk in range(3):
        seed = harness.options.seed + walk
        print(f"seed {seed}")
        rng = random.Random(seed)
        managers = [await harness.open_streams(), await harness.open_streams()]
        stream_id, model = f"walk {walk}", Model()
        await managers[0].create_writer(stream_id, "run", "agent")
        for _ in range(harness.options.steps):
            await _step(rng.choice(managers), stream_id, model, rng)
            await _compare(rng.choice(managers), stream_id, model, rng)


async def _step(streams: StreamManager, stream_id: str, model: Model, rng: random.Random) -> None:
    step = rng.randrange(5)
    match rng.choice(["write"] * 6 + ["rewind", "reset", "pause", "resume", "end", "fail"]):
        case "write" if model.status == "active":
            wanted = [f"{model.latest + number}" for number in range(rng.randrange(1, 20))]
            await write(streams, stream_id, wanted, step=step)
            for name in wanted:
                model.append(name, step)
        case "write":
            with raises(StreamNotActive, f"a write while {model.status}"):
                await write(streams, stream_id, ["refused"])
        case "rewind":
            kept = [row for row in model.rows if row[1] <= step]
            dropped = await streams.cleanup_to_step(stream_id, step)
            expect_same(dropped, len(model.rows) - len(kept), "chunks dropped")
            model.rows = kept
            model.append("stream_rewound", step)
        case "reset":
            await streams.reset_stream(stream_id)
            model.rows, model.status = [], "active"
            model.append("stream_resync", 0)
        case "pause" | "resume" | "end" | "fail" as change:
            await _change(streams, stream_id, model, change)


async def _change(streams: StreamManager, stream_id: str, model: Model, change: str) -> None:
    wanted = {"pause": "paused", "resume": "active", "end": "ended", "fail": "failed"}[change]
    if model.status in ("ended", "failed") and wanted != model.status:
        with raises(IllegalTransition, f"{change} while {model.status}"):
            await _make(streams, stream_id, change)
        return
    await _make(streams, stream_id, change)
    model.status = wanted


async def _make(streams: StreamManager, stream_id: str, change: str) -> None:
    match change:
        case "pause":
            await streams.pause_stream(stream_id)
        case "resume":
            await streams.resume_stream(stream_id)
        case "end":
            await streams.end_stream(stream_id)
        case "fail":
            await streams.fail_stream(stream_id, "why")


async def _compare(streams: StreamManager, stream_id: str, model: Model, rng: random.Random) -> None:
    expect_same(named(await streams.get_all_chunks(stream_id)), model.seen(), "all chunks")
    from_step = rng.randrange(5)
    expect_same(
        named(await streams.get_chunks_from_step(stream_id, from_step)), model.seen(0, from_step), "from a step"
    )
    info = await streams.get_stream_info(stream_id)
    assert info is not None
    first = model.rows[0][0] if model.rows else model.latest + 1
    expect_same(
        [info.status, info.total_chunks, info.first_sequence, info.latest_sequence],
        [model.status, len(model.rows), first, model.latest],
        "info",
    )
    cursor = rng.randrange(model.latest + 1)
    reader = await reader_of(streams, stream_id, cursor)
    if model.status == "active":
        wanted = model.seen(cursor)
        found: Seen = []
        stored = reader.stored()
        while len(found) < len(wanted):
            each = await soon(anext(stored))
            found += named([each])
        expect_same(found, wanted, f"a reader from {cursor}")
    else:
        expect_same(await read_all(reader), model.seen(cursor), f"a reader from {cursor}")
        expect(reader.outcome is not None and reader.outcome.status == model.status, "the reader's outcome is wrong")
    await reader.close()


@check("T7", "a reader that was attached from the start has seen everything that is retained", kind="random")
async def watched_walk(harness: Harness) -> None:
    print(f"seed {harness.options.seed}")
    rng = random.Random(harness.options.seed)
    streams, other = await harness.open_streams(max_chunks=0), await harness.open_streams(max_chunks=0)
    writer = await streams.create_writer("s", "run", "agent")
    tasks = [asyncio.create_task(read_all(await reader_of(manager, "s"))) for manager in (streams, other)]
    for number in range(harness.options.steps):
        await writer.write(chunk(f"{number}", step=rng.randrange(4)))
        if rng.random() < 0.05:
            await streams.cleanup_to_step("s", rng.randrange(4))
        if rng.random() < 0.2:
            await asyncio.sleep(0)
    await writer.close()
    await streams.end_stream("s")
    stored = await streams.get_all_chunks("s")
    for task in tasks:
        seen = await soon(task)
        sequences = [sequence for sequence, _ in seen]
        expect(sequences == sorted(set(sequences)), "a sequence came twice or out of order")
        missing = set(named(stored)) - set(seen)
        expect(not missing, f"retained, but never seen: {sorted(missing)[:5]}")
