"""T6: the oldest chunks are dropped, and a reader that would miss one gets an error."""

from __future__ import annotations

import random

from ...errors import StreamNotActive, StreamTruncated
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import kept, names, numbered, read_all, reader_of, soon, write, write_to

check = STREAM_MANAGER.check


@check("T6", "exactly the newest max_chunks chunks are retained")
async def newest_are_kept(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=10)
    everything = numbered(names("a", 60))
    written = 0
    for count in (4, 6, 1, 1, 25, 10, 3, 10):
        await write(streams, "s", names("a", count, written))
        written += count
        expect_same(await kept(streams, "s"), everything[max(0, written - 10) : written], f"after {written} chunks")
        info = await streams.get_stream_info("s")
        assert info is not None
        first = max(1, written - 9)
        expect_same(
            [info.first_sequence, info.latest_sequence, info.total_chunks], [first, written, min(10, written)], "info"
        )


@check("T6", "a cursor below the first retained chunk raises StreamTruncated; any later one can be read")
async def cursor_below_the_floor(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=10)
    await write(streams, "s", names("a", 25))
    await streams.end_stream("s")
    for cursor in (0, 1, 14):
        with raises(StreamTruncated, f"from {cursor}") as caught:
            await streams.create_resumable_reader("s", from_sequence=cursor)
        error = caught.error
        expect_same([error.first_sequence, error.from_sequence], [16, cursor], "error")  # type: ignore[attr-defined]
    for cursor in (15, 16, 25):
        seen = await read_all(await reader_of(streams, "s", cursor))
        expect_same(seen, numbered(names("a", 25))[cursor:], f"from {cursor}")
    expect_same(await read_all(await reader_of(streams, "s")), numbered(names("a", 25))[15:], "create_reader")


@check("T6", "a reader that retention overtakes gets an error, and has no gap before it")
async def overtaken_reader(harness: Harness) -> None:
    streams, other = await harness.open_streams(max_chunks=50), await harness.open_streams(max_chunks=50)
    for rounds in (1, 2, 200):  # slightly behind, and far behind
        stream_id = f"s{rounds}"
        await write(streams, stream_id, names("a", 20))
        reader = await reader_of(other, stream_id)
        seen: list[int] = []
        with raises(StreamTruncated, "the overtaken reader"):
            async for stored in reader.stored():
                seen.append(stored.sequence)
                if stored.sequence == 5:
                    for number in range(rounds):
                        await write(streams, stream_id, names("b", 100, 100 * number))
                    await streams.end_stream(stream_id)
        expect_same(seen, list(range(1, len(seen) + 1)), "what it saw until then")
        expect(len(seen) <= 20, "the reader has seen chunks that were dropped")


@check("T6", "max_chunks=0 keeps everything")
async def unlimited(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=0)
    await write(streams, "s", names("a", 12_000))
    expect(await kept(streams, "s") == numbered(names("a", 12_000)), "chunks are missing")


@check("T6", "gaps left by a rewind count neither as lost nor as retained")
async def rewind_and_retention(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=10)
    await write(streams, "s", names("a", 4), step=1)
    await write(streams, "s", names("b", 6), step=2)
    await streams.cleanup_to_step("s", 1)  # 1..4, and 11
    await write(streams, "s", names("c", 5), step=2)
    expect_same([sequence for sequence, _ in await kept(streams, "s")], [1, 2, 3, 4, *range(11, 17)], "all retained")
    seen = await streams.create_resumable_reader("s", from_sequence=0)
    expect(seen is not None, "the stream has no reader")
    await write(streams, "s", names("d", 2), step=2)
    expect_same(
        [sequence for sequence, _ in await kept(streams, "s")], [3, 4, *range(11, 19)], "the oldest were dropped"
    )
    with raises(StreamTruncated, "from 1") as caught:
        await streams.create_resumable_reader("s", from_sequence=1)
    expect_same(caught.error.first_sequence, 3, "the first one retained")  # type: ignore[attr-defined]
    await write(streams, "s", names("e", 3), step=2)
    expect_same([sequence for sequence, _ in await kept(streams, "s")], list(range(12, 22)), "no gap left")
    with raises(StreamTruncated, "from 10"):
        await streams.create_resumable_reader("s", from_sequence=10)
    await streams.end_stream("s")
    expect_same(len(await read_all(await reader_of(streams, "s", 11))), 10, "from the last dropped one")


@check("T6", "the next write drops chunks older than ttl; an idle stream expires after ttl, except its counter")
async def time_to_live(harness: Harness) -> None:
    now = 1_700_000_000_000

    def clock() -> int:
        return now

    streams = await harness.open_streams(ttl=60, clock=clock)
    await write(streams, "s", names("a", 3))
    now += 40_000
    await write(streams, "s", names("b", 2))
    now += 30_000
    await write(streams, "s", ["c"])
    expect_same(await kept(streams, "s"), [(4, "b.0"), (5, "b.1"), (6, "c")], "what is young enough")
    with raises(StreamTruncated, "from 2"):
        await streams.create_resumable_reader("s", from_sequence=2)
    info = await streams.get_stream_info("s")
    expect_same([info.first_sequence, info.total_chunks] if info else None, [4, 3], "info")
    await write(streams, "t", ["other"])
    now += 61_000
    expect(await streams.get_stream_info("s") is None, "the stream has not expired")
    expect(await streams.create_reader("s") is None, "an expired stream has a reader")
    expect_same(await kept(streams, "s"), [], "chunks of an expired stream")
    await write(streams, "s", ["anew"])
    expect_same(await kept(streams, "s"), [(7, "anew")], "the first chunk after the expiry")
    for cursor in (0, 5):
        with raises(StreamTruncated, f"from {cursor}, before the expiry"):
            await streams.create_resumable_reader("s", from_sequence=cursor)
    await streams.end_stream("s")
    expect_same(
        await read_all(await reader_of(streams, "s", 6)), [(7, "anew")], "a reader that had seen everything continues"
    )
    now += 1_000_000
    await write(streams, "u", ["makes room"])
    expect(await streams.get_stream_info("t") is None, "the other stream has not expired")
    expect_same(await write(streams, "t", ["again"]), 2, "its sequence continues, also after the cleanup")


@check("T6", "a writer that was idle longer than ttl continues, unless its stream has ended or was deleted")
async def quiet_writer(harness: Harness) -> None:
    now = 1_700_000_000_000

    def clock() -> int:
        return now

    streams = await harness.open_streams(ttl=60, clock=clock)
    writer = await streams.create_writer("s", "run", "agent")
    await write_to(writer, names("a", 3))
    reader = await reader_of(streams, "s")
    seen = aiter(reader.stored())
    expect_same([(await soon(anext(seen))).sequence for _ in range(3)], [1, 2, 3], "before the idle time")
    now += 61_000
    await write_to(writer, ["b"])
    expect_same(await kept(streams, "s"), [(4, "b")], "what is stored after a long tool call")
    expect_same((await soon(anext(seen))).sequence, 4, "what the attached reader sees next")
    await reader.close()
    now += 59_000
    await streams.end_stream("s")
    now += 59_000
    with raises(StreamNotActive, "the stream has ended"):
        await write_to(writer, ["c"])
    other = await streams.create_writer("t", "run", "agent")
    await write_to(other, ["a"])
    await streams.delete_stream("t")
    with raises(StreamNotActive, "the stream was deleted"):
        await write_to(other, ["b"])


@check("T6", "random appends and rewinds retain exactly the newest max_chunks chunks", kind="random")
async def random_retention(harness: Harness) -> None:
    print(f"seed {harness.options.seed}")
    rng = random.Random(harness.options.seed)
    limit = 12
    streams = await harness.open_streams(max_chunks=limit)
    model: list[tuple[int, int]] = []
    latest = floor = 0
    await streams.create_writer("s", "run", "agent")
    for _ in range(harness.options.steps):
        step = rng.randrange(4)
        if rng.random() < 0.2:
            dropped = await streams.cleanup_to_step("s", step)
            expect_same(dropped, sum(each[1] > step for each in model), "chunks dropped by the rewind")
            latest += 1
            model = [*(each for each in model if each[1] <= step), (latest, step)]
        else:
            count = rng.randrange(1, 6)
            await write(streams, "s", names("a", count), step=step)
            model += [(latest + number + 1, step) for number in range(count)]
            latest += count
            if len(model) > limit:
                floor = model[-limit - 1][0]
                model = model[-limit:]
        rows = await streams.get_all_chunks("s")
        expect_same([row.sequence for row in rows], [sequence for sequence, _ in model], "the retained sequences")
        cursor = rng.randrange(latest + 1)
        if cursor < floor:
            with raises(StreamTruncated, f"cursor {cursor} below {floor}"):
                await streams.create_resumable_reader("s", from_sequence=cursor)
        else:
            reader = await soon(reader_of(streams, "s", cursor))
            await reader.close()
