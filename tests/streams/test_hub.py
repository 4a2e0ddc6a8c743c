"""The hub through the manager's API: subscriptions, errors of the source, closing, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.backends.sqlite.stream_manager import SqliteStreamManager
from helix_agents.backends.sqlite.wakeup import _folder
from helix_agents.errors import StoreCorrupt, StoreUnavailable
from helix_agents.streams.hub import PAGE_ROWS, Hub
from helix_agents.streams.records import StoredText, StreamHead, StreamPage
from helix_agents.streams.wakeup import Wake, Wakeup


class Recorder(Wakeup):
    """A source that records its calls."""

    def __init__(self, *, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[str] = []

    async def start(self, wake: Wake) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("not yet")
        self.calls.append("start")

    def watch(self, stream_id: str) -> None:
        self.calls.append(f"watch {stream_id}")

    def unwatch(self, stream_id: str) -> None:
        self.calls.append(f"unwatch {stream_id}")

    async def close(self) -> None:
        self.calls.append("close")


class Manager(InMemoryStreamManager):
    def __init__(self, source: Wakeup) -> None:
        super().__init__()
        self._wakeup = self.hub._wakeup = source


async def _reader(manager: Any, stream_id: str = "s") -> Any:
    reader = await manager.create_reader(stream_id)
    assert reader is not None
    return reader


async def test_a_stream_is_watched_from_its_first_reader_to_its_last() -> None:
    source = Recorder()
    manager = Manager(source)
    writer = await manager.create_writer("s", "run", "agent")
    await writer.write({"type": "a"})
    await writer.flush()
    first, second = await _reader(manager), await _reader(manager)
    steps = [aiter(first), aiter(second)]
    for step in steps:
        await anext(step)
    assert source.calls == ["start", "watch s"]
    await first.close()
    await second.close()
    await manager.close()
    assert source.calls == ["start", "watch s", "unwatch s", "close"]


async def test_a_source_that_cannot_start_is_tried_again_by_the_next_reader() -> None:
    manager = Manager(Recorder(failures=1))
    await manager.create_writer("s", "run", "agent")
    with pytest.raises(StoreUnavailable):
        await manager.create_reader("s")
    await _reader(manager)
    assert manager.hub.subscriptions == 1


async def test_closing_the_manager_tells_waiting_readers() -> None:
    manager = InMemoryStreamManager()
    await manager.create_writer("s", "run", "agent")
    waiting = asyncio.ensure_future(anext(aiter(await _reader(manager))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await manager.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(StoreUnavailable):
        await manager.create_reader("s")


async def test_closing_the_manager_stores_what_writers_hold() -> None:
    manager = InMemoryStreamManager()
    writer = await manager.create_writer("s", "run", "agent")
    await writer.write({"type": "a"})
    await manager.close()
    assert len(await manager.get_all_chunks("s")) == 1


async def test_a_read_that_fails_for_good_reaches_the_reader_and_the_next_reader_starts_anew() -> None:
    manager = InMemoryStreamManager()
    await manager.create_writer("s", "run", "agent")
    reader = await _reader(manager)
    read, manager._read = manager._read, _broken  # type: ignore[method-assign]
    with pytest.raises(StoreCorrupt):
        await anext(aiter(reader))
    await reader.close()
    manager._read = read  # type: ignore[method-assign]
    again = aiter(await _reader(manager))
    writer = await manager.create_writer("s", "run", "agent")
    await writer.write({"type": "a"})
    assert (await anext(again))["type"] == "a"


async def _turns() -> None:
    """Let every task run that can, without waiting for time to pass."""
    for _ in range(50):
        await asyncio.sleep(0)


async def _broken(*_: Any, **__: Any) -> Any:
    raise StoreCorrupt("broken")


async def test_a_reader_made_after_a_resume_does_not_believe_in_the_pause_that_others_last_saw() -> None:
    manager = InMemoryStreamManager()
    async with await manager.create_writer("s", "run", "agent") as writer:
        await writer.write({"type": "a"})
        await writer.write({"type": "b"})
    behind = aiter(await _reader(manager))
    await anext(behind)  # stays, and with it what this process has cached of the stream
    await manager.pause_stream("s")
    await _turns()
    gate, read = asyncio.Event(), manager._read

    async def slow(*args: Any, **kwargs: Any) -> Any:
        await gate.wait()
        return await read(*args, **kwargs)

    manager._read = slow  # type: ignore[method-assign]
    await manager.resume_stream("s")
    reader = await manager.create_resumable_reader("s", from_sequence=2)
    assert reader is not None
    task = asyncio.create_task(_drain(reader))
    await _turns()
    assert not task.done()
    gate.set()
    await manager.end_stream("s")
    assert await task == []
    assert reader.outcome is not None
    assert reader.outcome.status == "ended"


async def _drain(reader: Any) -> list[Any]:
    return [chunk async for chunk in reader]


async def test_readers_that_do_not_read_hold_little_memory(tmp_path: Path) -> None:
    """T9: 40 MB flow past a hundred readers which stopped at different places."""
    manager = SqliteStreamManager(tmp_path / "s.db", synchronous="OFF", max_chunks=0)
    writer = await manager.create_writer("s", "run", "agent")
    readers = []
    for number in range(100):
        await writer.write({"type": "a", "text": "x" * 1000, "n": number})
        await writer.flush()
        readers.append(aiter(await _reader(manager)))
        await anext(readers[-1])
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(40_000):
            await writer.write({"type": "a", "text": "y" * 1000, "n": number})
        await writer.close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
    await manager.close()


async def test_a_reader_does_not_wait_twice_for_a_store_that_has_waited_itself() -> None:
    manager = InMemoryStreamManager()
    await manager.create_writer("s", "run", "agent")
    reader = aiter(await _reader(manager))
    tries = 0

    async def away(*_: Any, **__: Any) -> Any:
        nonlocal tries
        tries += 1
        raise StoreUnavailable("away", nothing_written=True)

    manager._read = away  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable):
        await anext(reader)
    assert tries == 1


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_a_manager_can_be_closed_from_another_event_loop(backend: str, tmp_path: Path) -> None:
    manager: Any = SqliteStreamManager(tmp_path / "s.db") if backend == "sqlite" else InMemoryStreamManager()

    async def use() -> None:
        async with await manager.create_writer("s", "run", "agent") as writer:
            await writer.write({"type": "a"})
        await anext(aiter(await _reader(manager)))

    loop = asyncio.new_event_loop()  # which goes without a word to its tasks, as in a notebook
    loop.run_until_complete(use())
    asyncio.run(manager.close())
    assert not os.path.exists(_folder(os.path.realpath(tmp_path / "s.db")))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_a_manager_can_be_closed_when_its_event_loop_has_ended(backend: str, tmp_path: Path) -> None:
    manager: Any = SqliteStreamManager(tmp_path / "s.db") if backend == "sqlite" else InMemoryStreamManager()

    async def use() -> None:
        async with await manager.create_writer("s", "run", "agent") as writer:
            await writer.write({"type": "a"})
        await anext(aiter(await _reader(manager)))

    asyncio.run(use())
    asyncio.run(manager.close())
    assert not os.path.exists(_folder(os.path.realpath(tmp_path / "s.db")))


async def test_time_is_up_also_while_others_keep_writing() -> None:
    manager = InMemoryStreamManager()
    async with await manager.create_writer("s", "run", "agent") as writer:
        await writer.write({"type": "a"})
    reader = await _reader(manager)
    assert len(await reader.read()) == 1

    async def wake() -> None:
        while True:  # as SQLite does when anything in the file has changed
            manager.hub.wake(None)
            await asyncio.sleep(0)

    others = asyncio.create_task(wake())
    try:
        async with asyncio.timeout(20):
            assert await reader.read(timeout_seconds=0.2) == []
    finally:
        others.cancel()
    await reader.close()
    await manager.close()


class LoopTime:
    """The time of the running loop, which the test advances, and the timers that are set in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.timers = 0
        self._call_at = loop.call_at
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_at", self._counted)

    def _counted(self, *args: Any, **options: Any) -> asyncio.TimerHandle:
        self.timers += 1
        return self._call_at(*args, **options)

    async def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(10):
            await asyncio.sleep(0)


async def _heard(reader: Any, writer: Any, *, timeout_seconds: float) -> int:
    """Return how many chunks a waiting reader gets when one is written."""
    reading = asyncio.create_task(reader.read(timeout_seconds=timeout_seconds))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done()
    await writer.write({"type": "a"})
    return len(await reading)


async def test_reads_with_a_timeout_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some runtimes keep a timer until its time, also one that was cancelled, and limit how many there are."""
    manager, time = InMemoryStreamManager(), LoopTime(monkeypatch)
    writer = await manager.create_writer("s", "run", "agent")
    reader = await _reader(manager)
    for _ in range(50):
        assert await _heard(reader, writer, timeout_seconds=30) == 1
    assert time.timers == 1
    await reader.close()
    await manager.close()


@pytest.mark.parametrize(("before", "seconds"), [(5, 30), (30, 5)], ids=["later than the timer", "sooner"])
async def test_each_read_has_its_own_time(monkeypatch: pytest.MonkeyPatch, before: float, seconds: float) -> None:
    manager, time = InMemoryStreamManager(), LoopTime(monkeypatch)
    writer = await manager.create_writer("s", "run", "agent")
    reader = await _reader(manager)
    assert await _heard(reader, writer, timeout_seconds=before) == 1
    for _ in range(2):
        reading = asyncio.create_task(reader.read(timeout_seconds=seconds))
        await time.pass_seconds(0)
        await time.pass_seconds(seconds - 1)
        assert not reading.done()
        await time.pass_seconds(2)
        assert reading.done()
        assert await reading == []
    await reader.close()
    await manager.close()


async def test_history_that_was_read_a_moment_ago_is_not_read_again() -> None:
    streams = InMemoryStreamManager(max_chunks=0)
    async with await streams.create_writer("s", "run", "agent") as writer:
        for number in range(2 * PAGE_ROWS + 10):
            await writer.write({"type": "text_delta", "delta": str(number)})
    await streams.end_stream("s")
    reads = []
    for _ in range(2):
        before = streams.hub.reads
        reader = await streams.create_reader("s")
        assert reader is not None
        async with reader:
            assert len([chunk async for chunk in reader]) == 2 * PAGE_ROWS + 10
        reads.append(streams.hub.reads - before)
    assert reads[1] < reads[0]
    await streams.close()


async def test_nothing_follows_a_stream_that_nobody_reads() -> None:
    streams = InMemoryStreamManager()
    async with await streams.create_writer("s", "run", "agent") as writer:
        await writer.write({"type": "text_delta", "delta": "x"})
    reader = await streams.create_reader("s")
    assert reader is not None
    before = asyncio.all_tasks()
    async with reader:
        assert len(await reader.read()) == 1
        assert len(asyncio.all_tasks()) > len(before)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    await streams.close()


@pytest.mark.parametrize("gone", [False, True])
async def test_who_asks_for_a_page_that_is_being_read_shares_it(gone: bool) -> None:
    head = StreamHead("s", "i", "active", 0, 3, 0, 1, 3, None, None, 0, 0, 0)
    gate = asyncio.Event()

    async def read(stream_id: str, after: int, rows: int, chars: int) -> StreamPage | None:
        await gate.wait()
        return None if gone else StreamPage(head, [StoredText(number, 1, "{}") for number in (1, 2, 3)])

    hub = Hub(read, Recorder())
    reading = [asyncio.create_task(hub.history(head, after)) for after in (0, 1)]
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    found = [await each for each in reading]
    sequences = [None if page is None else [row.sequence for row in page.rows] for page in found]
    assert (sequences, hub.reads) == ([None, None] if gone else [[1, 2, 3], [2, 3]], 1)
    await hub.close()
