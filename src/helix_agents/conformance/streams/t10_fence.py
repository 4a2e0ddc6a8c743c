"""T10: a replaced owner of a stream no longer changes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import InvalidArgument, StreamFenced
from ...streams.contract import StreamManager
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .faults import Verb, wrap
from .harness import STREAM_MANAGER
from .sample import chunk, kept, names, numbered, read_all, reader_of, soon, write, write_to

check = STREAM_MANAGER.check

Change = Callable[[StreamManager, int | None], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "create_writer": lambda streams, fence: streams.create_writer("s", "run", "agent", fence=fence),
    "cleanup_to_step": lambda streams, fence: streams.cleanup_to_step("s", 0, fence=fence),
    "reset_stream": lambda streams, fence: streams.reset_stream("s", fence=fence),
    "pause_stream": lambda streams, fence: streams.pause_stream("s", fence=fence),
    "resume_stream": lambda streams, fence: streams.resume_stream("s", fence=fence),
    "end_stream": lambda streams, fence: streams.end_stream("s", "output", fence=fence),
    "fail_stream": lambda streams, fence: streams.fail_stream("s", "error", fence=fence),
}


async def refused(change: Awaitable[object]) -> StreamFenced:
    """Return the error of a change that must be rejected."""
    with raises(StreamFenced, "a change by an owner that was replaced") as caught:
        await soon(change)
    assert isinstance(caught.error, StreamFenced)
    return caught.error


@check("T10", "a writer with a smaller fence stores nothing and gets the error at the next flush")
async def old_writer(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    old = await streams.create_writer("s", "old", "agent", fence=1)
    await write_to(old, names("old", 2))
    new = await other.create_writer("s", "new", "agent", fence=2)
    error = await refused(write_to(old, ["late"]))
    expect_same([error.stream_id, error.fence, error.current_fence], ["s", 1, 2], "what the error says")
    await write_to(new, ["new"])
    await refused(write_to(old, ["later"]))
    expect_same(await kept(other, "s"), numbered([*names("old", 2), "new"]), "the chunks")


@check("T10", "every change with a smaller fence is rejected and leaves the stream unchanged")
async def old_changes(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await streams.create_writer("s", "run", "agent", fence=7)
    await write(streams, "s", names("a", 2), step=3)
    before = await other.get_stream_info("s")
    for name, change in CHANGES.items():
        error = await refused(change(other, 6))
        expect_same([error.fence, error.current_fence], [6, 7], f"{name}: what the error says")
        expect_same(await streams.get_stream_info("s"), before, f"{name}: the stream afterwards")
    expect_same(await kept(streams, "s"), numbered(names("a", 2)), "the chunks")


@check("T10", "every change raises the fence to its own in the same write, and never lowers it")
async def raised(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await streams.create_writer("s", "run", "agent")
    fence = 10
    for name, change in CHANGES.items():
        fence += 5
        writer = await streams.create_writer("s", "run", "agent", fence=fence)
        await change(other, fence + 1)
        await change(other, fence + 1)
        info = await streams.get_stream_info("s")
        assert info is not None
        expect_same(info.fence, fence + 1, f"the fence after {name}")
        await refused(write_to(writer, ["late"]))
        await other.reset_stream("s")
    info = await streams.get_stream_info("s")
    expect_same(info and info.fence, fence + 1, "the fence after a reset without one")


@check("T10", "a delete with a smaller fence is rejected and leaves the stream unchanged")
async def deleted(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    for fence in (7, 8):
        await streams.create_writer("s", "run", "agent", fence=7)
        await write(streams, "s", names("a", 2))
        before = await other.get_stream_info("s")
        error = await refused(other.delete_stream("s", fence=6))
        expect_same([error.fence, error.current_fence], [6, 7], "what the error says")
        expect_same(await streams.get_stream_info("s"), before, "the stream afterwards")
        expect_same(await kept(streams, "s"), numbered(names("a", 2)), "the chunks")
        await other.delete_stream("s", fence=fence)
        await other.delete_stream("s", fence=fence)
        expect(await streams.get_stream_info("s") is None, f"the stream still exists, deleted with fence {fence}")


@check("T10", "calls without a fence are not affected, and many writers may share one fence")
async def without(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    first = await streams.create_writer("s", "run", "agent", fence=3)
    second = await other.create_writer("s", "run", "agent", fence=3)
    free = await other.create_writer("s", "run", "agent")
    await write_to(first, ["a"])
    await write_to(second, ["b"])
    await write_to(free, ["c"])
    expect_same(await other.cleanup_to_step("s", 0), 0, "chunks dropped without a fence")
    await write_to(first, ["d"])
    await streams.end_stream("s", fence=3)
    seen = [name for _, name in await read_all(await reader_of(other, "s"))]
    expect_same(seen, ["a", "b", "c", "stream_rewound", "d"], "the chunks")


@check("T10", "what a replaced owner had in flight or buffered is not stored after the rewind", kind="faults")
async def buffered(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    frozen, woken, calls = asyncio.Event(), asyncio.Event(), 0

    def stalls(verb: Verb) -> Verb:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                frozen.set()
                await woken.wait()
            return await verb(*args, **kwargs)

        return call

    wrap(streams, "_append", stalls)
    old = await streams.create_writer("s", "old", "agent", fence=1)
    await old.write(chunk("shown", step=1))
    await old.flush()
    for name in names("stale", 5):
        await old.write(chunk(name, step=2))
    await soon(frozen.wait())
    expect_same(await other.cleanup_to_step("s", 1, fence=2), 0, "chunks dropped")
    woken.set()
    await refused(old.flush())
    new = await other.create_writer("s", "new", "agent", fence=2)
    await write_to(new, ["fresh"])
    expect_same(await kept(other, "s"), [(1, "shown"), (2, "stream_rewound"), (3, "fresh")], "the chunks")


@check(
    "T10",
    "when owners replace each other while they write, only the newest one writes after the last rewind",
    kind="tasks",
)
async def race(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    await streams.create_writer("s", "run", "agent")

    async def own(fence: int) -> int:
        manager = (streams, other)[fence % 2]
        try:
            await manager.cleanup_to_step("s", 0, fence=fence)
            writer = await manager.create_writer("s", f"run {fence}", "agent", fence=fence)
            for number in range(20):
                await writer.write(chunk(f"{fence}.{number}", step=1))
                await asyncio.sleep(0)
            await writer.flush()
        except StreamFenced:
            return 0
        return fence

    finished = await soon(asyncio.gather(*(own(fence) for fence in range(1, 13))))
    expect_same(max(finished), 12, "the newest owner")
    written = [name for _, name in await kept(other, "s") if name != "stream_rewound"]
    expect_same(written, names("12", 20), "the chunks after the last rewind")


@check("T10", "a write raises the fence, also by a writer that did not open the stream")
async def raised_by_a_write(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    old = await streams.create_writer("s", "old", "agent", fence=4)
    await write_to(old, ["a"])
    attached = other.attach_writer("s", "new", "agent", fence=6)
    if attached is None:
        return
    await write_to(attached, ["b"])
    info = await streams.get_stream_info("s")
    expect_same(info and info.fence, 6, "the fence")
    await refused(write_to(old, ["c"]))
    await refused(streams.pause_stream("s", fence=5))
    expect_same([name for _, name in await kept(streams, "s")], ["a", "b"], "the chunks")


@check("T10", "the fence outlives the expiry of the stream")
async def outlives_expiry(harness: Harness) -> None:
    now = [1_000_000_000_000]
    streams = await harness.open_streams(ttl=60, clock=lambda: now[0])
    old = await streams.create_writer("s", "old", "agent", fence=4)
    await write_to(old, ["a"])
    await streams.cleanup_to_step("s", 0, fence=5)
    now[0] += 61_000
    await refused(streams.create_writer("s", "old", "agent", fence=4))
    await refused(write_to(old, ["b"]))
    writer = await streams.create_writer("s", "new", "agent", fence=5)
    await write_to(writer, ["c"])
    expect_same([name for _, name in await kept(streams, "s")], ["c"], "the chunks")


@check("T10", "a fence must be an integer that every backend can hold; otherwise nothing changes")
async def arguments(harness: Harness) -> None:
    streams = await harness.open_streams()
    await write(streams, "s", ["a"])
    for fence in (-1, True, 1.0, "1", 2**53):
        for name, change in CHANGES.items():
            with raises(InvalidArgument, f"{name} with the fence {fence!r}") as caught:
                await change(streams, fence)  # type: ignore[arg-type]
            expect(repr(fence) in str(caught.error), f"{name}: the error names the fence: {caught.error}")
    await streams.create_writer("s", "run", "agent", fence=2**53 - 1)
    await refused(streams.reset_stream("s", fence=2**53 - 2))
    expect_same(await kept(streams, "s"), numbered(["a"]), "the chunks")
