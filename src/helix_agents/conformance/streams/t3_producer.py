"""T3: a retried write never duplicates a chunk, and none is lost."""

from __future__ import annotations

import random
from typing import Any

from ..expect import expect, expect_same
from ..harness import Harness
from ..tools.crew import hear
from .child import child
from .faults import StreamFault, Verb, faulty, wrap
from .harness import STREAM_MANAGER
from .sample import chunk, kept, names, numbered, reader_of, reading, soon, write, write_to

check = STREAM_MANAGER.check


@check("T3", "if every other reply is lost, each chunk is still stored once", kind="faults")
async def lost_replies(harness: Harness) -> None:
    streams = await harness.open_streams()
    wrap(streams, "_append", faulty(lambda call: "after" if call % 2 else "none"))
    async with await streams.create_writer("s", "run", "agent") as writer:
        for number in range(5):
            last = await write_to(writer, names("a", 3, 3 * number))
            expect_same(last, 3 * number + 3, "the sequence that flush returns after a retry")
    expect_same(await kept(streams, "s"), numbered(names("a", 15)), "the chunks")


@check("T3", "if every other write is lost, each chunk is still stored once", kind="faults")
async def lost_calls(harness: Harness) -> None:
    streams = await harness.open_streams()
    wrap(streams, "_append", faulty(lambda call: "before" if call % 2 else "none"))
    async with await streams.create_writer("s", "run", "agent") as writer:
        for number in range(5):
            await write_to(writer, names("a", 3, 3 * number))
    expect_same(await kept(streams, "s"), numbered(names("a", 15)), "the chunks")


@check("T3", "with two writers, live readers and random faults, each chunk appears exactly once", kind="random")
async def random_faults(harness: Harness) -> None:
    print(f"seed {harness.options.seed}")
    rng = random.Random(harness.options.seed)
    streams, other = await harness.open_streams(), await harness.open_streams()

    def choose(call: int) -> StreamFault:
        # Never twice in a row, so that the limited retries suffice.
        return rng.choice(["before", "after", "none"]) if call % 2 else "none"

    first = await streams.create_writer("s", "run 1", "agent")
    second = await streams.create_writer("s", "run 2", "agent")
    near, far = await reader_of(streams, "s"), await reader_of(other, "s")
    wrap(streams, "_append", faulty(choose))
    wrap(streams, "_read", faulty(choose))
    async with reading(near) as here, reading(far) as there:
        for number in range(40):
            await first.write(chunk(f"a.{number}"))
            await second.write(chunk(f"b.{number}"))
            if rng.random() < 0.5:
                await rng.choice([first, second]).flush()
        await first.close()
        await second.close()
        await streams.end_stream("s")
        stored = await kept(other, "s")
        for task in (here, there):
            expect_same(await soon(task), stored, "what a live reader saw")
    expect_same([sequence for sequence, _ in stored], list(range(1, 81)), "the sequences")
    for prefix in "ab":
        expect_same([name for _, name in stored if name[0] == prefix], names(prefix, 40), f"the order of {prefix}")


@check("T3", "a retry of a stored write succeeds although the stream has ended since", kind="faults")
async def retry_after_the_end(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")

    def end_behind_its_back(verb: Verb) -> Verb:
        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await verb(*args, **kwargs)
            await other.end_stream("s")
            return answer

        return call

    wrap(streams, "_append", end_behind_its_back)
    wrap(streams, "_append", faulty(lambda call: "after" if call == 1 else "none"))
    expect_same(await write_to(writer, ["a"]), 1, "flush after the retry")
    await writer.close()
    expect_same(await kept(streams, "s"), [(1, "a")], "the chunks")


@check("T3", "a retry after a reset does not bring the dropped chunk back", kind="faults")
async def retry_after_reset(harness: Harness) -> None:
    streams, other = await harness.open_streams(), await harness.open_streams()
    writer = await streams.create_writer("s", "run", "agent")

    def reset_behind_its_back(verb: Verb) -> Verb:
        resets = iter([other.reset_stream])

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await verb(*args, **kwargs)
            for reset in resets:  # the first time only
                await reset("s")
            return answer

        return call

    wrap(streams, "_append", reset_behind_its_back)
    wrap(streams, "_append", faulty(lambda call: "after" if call == 1 else "none"))
    await write_to(writer, ["a"])
    names_left = {name for _, name in await kept(other, "s")}
    expect_same(sorted(names_left), ["stream_resync"], "what is left")


@check(
    "T3",
    "when a producer is killed with SIGKILL, no acknowledged chunk is lost, and another one takes over",
    kind="processes",
)
async def killed_producer(harness: Harness) -> None:
    streams = await harness.open_streams(max_chunks=0)
    await streams.create_writer("s", "run", "agent")
    async with reading(await reader_of(streams, "s")) as live:
        acknowledged = {"p": -1, "q": -1}
        for victim in acknowledged:
            async with child(harness, "write", stream_id="s", name=victim, count=10_000_000, flush_every=7) as process:
                while acknowledged[victim] < 300:
                    acknowledged[victim] = (await hear(process))[0]
                process.kill()
                await process.wait()
        # A server may still finish a request of a dead client: only the final state counts.
        await write(streams, "s", names("r", 20))
        await streams.end_stream("s")
        expected = [name for _, name in await kept(streams, "s")]
        for victim, count in acknowledged.items():
            stored = [name for name in expected if name.startswith(victim)]
            expect(len(stored) > count, f"{count} of {victim} were acknowledged, {len(stored)} are stored")
            expect_same(stored, names(victim, len(stored)), f"what {victim} left behind")
        expect_same([name for name in expected if name.startswith("r")], names("r", 20), "what came after them")
        expect_same(await soon(live), numbered(expected), "what a reader saw of all of them")
