"""Bad input to streams is rejected with one of the library's errors, and the stream stays unchanged."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidArgument, NotSerializable
from ..expect import expect_same, raises
from ..harness import Harness
from .harness import STREAM_MANAGER
from .sample import chunk, write

check = STREAM_MANAGER.check

ODD_COUNTS: tuple[Any, ...] = (None, "1", 1.0, True, -1, 2**53, 2**63 - 1, 2**63, 10**20, 10**5000, [1])
ODD_IDS: tuple[Any, ...] = ("", "x" * 257, "a\x00b", "\ud800", "{a}", None, 5)


@check("input", "invalid steps and cursors are rejected, and nothing is dropped")
async def odd_numbers_are_refused(harness: Harness) -> None:
    manager = await harness.open_streams()
    await write(manager, "s", ["a", "b"], step=1)
    for odd in ODD_COUNTS:
        named = f"a number like {type(odd).__name__}"
        with raises(InvalidArgument, f"cleanup_to_step with {named}"):
            await manager.cleanup_to_step("s", odd)
        with raises(InvalidArgument, f"get_chunks_from_step with {named}"):
            await manager.get_chunks_from_step("s", odd)
        with raises(InvalidArgument, f"create_resumable_reader with {named}"):
            await manager.create_resumable_reader("s", from_sequence=odd)
    expect_same([stored.sequence for stored in await manager.get_all_chunks("s")], [1, 2], "sequences")


@check("input", "chunks that cannot be stored are rejected when they are written, and the writer continues")
async def odd_chunks_are_refused(harness: Harness) -> None:
    manager = await harness.open_streams()
    async with await manager.create_writer("s", "run", "agent") as writer:
        for odd in (-1, 2**53, 2**63, 10**20):
            with raises(InvalidArgument, f"a chunk of step {odd}"):
                await writer.write(chunk("odd", step=odd))
        for value in (10**5000, "\ud83d\ude00", float("nan"), {1: 2}):
            with raises(NotSerializable, f"a chunk with a {type(value).__name__} that does not survive JSON encoding"):
                await writer.write(chunk("odd", value=value))
        await writer.write(chunk("fine"))
        expect_same(await writer.flush(), 1, "the sequence")


@check("input", "invalid stream ids are rejected everywhere")
async def odd_ids_are_refused(harness: Harness) -> None:
    manager = await harness.open_streams()
    for odd in ODD_IDS:
        for name in ("create_reader", "end_stream", "get_stream_info", "get_all_chunks", "reset_stream"):
            with raises(InvalidArgument, f"{name} of {odd!r:.20}"):
                await getattr(manager, name)(odd)
        for arguments in ((odd, "run", "agent"), ("s", odd, "agent"), ("s", "run", odd)):
            with raises(InvalidArgument, f"create_writer{arguments!r:.60}"):
                await manager.create_writer(*arguments)
