"""T5: end, fail, pause and delete, for readers, later readers and writers."""

from __future__ import annotations

from ...errors import IllegalTransition, InvalidArgument, NotSerializable, StreamFailed, StreamNotActive
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import chunk, kept, names, numbered, read_all, reader_of, reading, soon, turns, write

check = STREAM_MANAGER.check


@check("T5", "after end, live and later readers get everything, then the outcome with the final output")
async def end(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await write(streams, "s", names("a", 2))
    live = await reader_of(other, "s")
    async with reading(live) as task:
        expect(live.outcome is None, "an outcome while the stream is active")
        await streams.end_stream("s", {"answer": [42]})
        expect_same(await soon(task), numbered(names("a", 2)), "the live reader")
    late = await reader_of(other, "s")
    expect_same(await read_all(late), numbered(names("a", 2)), "the late reader")
    for reader in (live, late):
        expect_same(reader.outcome, {"status": "ended", "final_output": {"answer": [42]}, "error": None}, "the outcome")
    info = await other.get_stream_info("s")
    assert info is not None
    expect_same([info.status, info.final_output, info.total_chunks], ["ended", {"answer": [42]}, 2], "the info")


@check("T5", "ending twice keeps the first output; anything that contradicts the end is rejected")
async def end_is_final(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", ["a"])
    await streams.end_stream("s", 1)
    await streams.end_stream("s", 2)
    info = await streams.get_stream_info("s")
    expect_same(info.final_output if info else None, 1, "the final output")
    with raises(IllegalTransition, "fail after end"):
        await streams.fail_stream("s", "late")
    with raises(IllegalTransition, "pause after end"):
        await streams.pause_stream("s")
    with raises(IllegalTransition, "resume after end"):
        await streams.resume_stream("s")
    with raises(StreamNotActive, "a writer after end"):
        await streams.create_writer("s", "run", "agent")
    with raises(NotSerializable, "an output that is not JSON"):
        await streams.end_stream("s", object())


@check("T5", "an empty stream that ends has an empty history")
async def empty_end(harness: Harness) -> None:
    streams = await harness.open_streams()
    await streams.create_writer("s", "run", "agent")
    async with reading(await reader_of(streams, "s")) as task:
        await streams.end_stream("s")
        expect_same(await soon(task), [], "the live reader")
    expect_same(await read_all(await reader_of(streams, "s")), [], "the late reader")


@check("T5", "after fail, live readers raise after the last chunk, and history stays readable")
async def fail(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await write(streams, "s", names("a", 3))
    live = await reader_of(other, "s")
    seen: list[str] = []
    with raises(StreamFailed, "the live reader") as caught:
        async for found in live:
            seen.append(found["delta"])
            if len(seen) == 3:
                await streams.fail_stream("s", "boom \ud800")
    expect_same(seen, names("a", 3), "what the live reader saw first")
    expect_same(caught.error.error, "boom \ud800", "the error's message")  # type: ignore[attr-defined]
    expect(live.outcome is not None and live.outcome.status == "failed", "the outcome is not failed")
    expect(await other.create_reader("s") is None, "create_reader returns a reader of a failed stream")
    expect_same(await kept(other, "s"), numbered(names("a", 3)), "get_all_chunks")
    history = await reader_of(other, "s", 1)
    expect_same(await read_all(history), numbered(names("a", 3))[1:], "the resumable reader")
    expect_same(history.outcome, {"status": "failed", "final_output": None, "error": "boom \ud800"}, "its outcome")
    with raises(StreamNotActive, "a writer after fail"):
        await streams.create_writer("s", "run", "agent")


@check("T5", "after pause, readers finish and writers are rejected; after resume both continue")
async def pause(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    await writer.write(chunk("a"))
    await writer.flush()
    live = await reader_of(other, "s")
    async with reading(live) as task:
        await streams.pause_stream("s")
        await streams.pause_stream("s")
        expect_same(await soon(task), [(1, "a")], "the live reader")
    expect_same(live.outcome, {"status": "paused", "final_output": None, "error": None}, "its outcome")
    with raises(StreamNotActive, "a write while paused"):
        await writer.write(chunk("refused"))
        await writer.flush()
    with raises(StreamNotActive, "a new writer while paused"):
        await other.create_writer("s", "run", "agent")
    expect_same(await read_all(await reader_of(other, "s")), [(1, "a")], "a reader that attaches while paused")
    for _ in range(3):
        await streams.resume_stream("s")
        # Right after a resume, when the readers of the other process may not have seen it yet.
        async with reading(await reader_of(other, "s", 1)) as resumed:
            await turns()
            expect(not resumed.done(), "a reader that attached after the resume finished immediately")
            await streams.pause_stream("s")
            expect_same(await soon(resumed), [], "the reader after the resume")
    await streams.resume_stream("s")
    await writer.write(chunk("b"))
    await writer.close()
    await streams.end_stream("s")
    expect_same(await read_all(await reader_of(other, "s", 1)), [(2, "b")], "the reader that continues")


@check("T5", "a paused stream may end or fail")
async def end_while_paused(harness: Harness) -> None:
    streams = await harness.open_streams()
    for stream_id in ("s", "t"):
        await write(streams, stream_id, ["a"])
        await streams.pause_stream(stream_id)
    await streams.end_stream("s")
    await streams.fail_stream("t", "why")
    info = [await streams.get_stream_info(stream_id) for stream_id in ("s", "t")]
    expect_same([each.status if each else None for each in info], ["ended", "failed"], "the statuses")


@check("T5", "after delete, attached readers finish, nothing is left, and a new stream with the id starts at 1")
async def delete(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")
    for name in names("a", 3):
        await writer.write(chunk(name))
    await writer.flush()
    async with reading(await reader_of(streams, "s")) as here, reading(await reader_of(other, "s")) as there:
        await streams.delete_stream("s")
        await streams.delete_stream("s")
        for task in (here, there):
            expect_same(await soon(task), numbered(names("a", 3)), "an attached reader")
    expect(await other.get_stream_info("s") is None, "the deleted stream still has info")
    expect_same(await other.get_all_chunks("s"), [], "chunks of the deleted stream")
    expect(await other.create_reader("s") is None, "the deleted stream still has a reader")
    with raises(StreamNotActive, "a write by its writer"):
        await writer.write(chunk("late"))
        await writer.flush()
    await write(other, "s", ["new"])
    expect_same(await kept(streams, "s"), [(1, "new")], "the new stream")


@check("T5", "a reader of a deleted stream does not mistake its successor for it")
async def deleted_and_made_anew(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await write(streams, "s", names("a", 3))
    async with reading(await reader_of(other, "s")) as task:
        await turns()
        await streams.delete_stream("s")
        await write(streams, "s", names("b", 9))
        seen = await soon(task)
    expect_same(seen, numbered(names("a", 3))[: len(seen)], "the reader of the old stream")


@check("T5", "changes to a stream that does not exist change nothing; bad ids are rejected")
async def no_such_stream(harness: Harness) -> None:
    streams = await harness.open_streams()
    await streams.end_stream("s")
    await streams.fail_stream("s", "x")
    await streams.reset_stream("s")
    await streams.delete_stream("s")
    expect_same(await streams.cleanup_to_step("s", 0), 0, "chunks dropped")
    expect(await streams.get_stream_info("s") is None, "a stream was created")
    for bad in ("", "a{b}", "x" * 257, "new\nline"):
        with raises(InvalidArgument, f"the id {bad[:9]!r}"):
            await streams.create_writer(bad, "run", "agent")
        with raises(InvalidArgument, f"the id {bad[:9]!r}"):
            await streams.get_stream_info(bad)
