"""A reusable timeout: a wait ends at its own time, whichever timer was set before."""

from __future__ import annotations

import asyncio

from helix_agents.streams.deadline import Deadline


async def test_a_wait_that_is_due_ends_with_false() -> None:
    loop, deadline = asyncio.get_running_loop(), Deadline()
    waiter: asyncio.Future[bool | None] = loop.create_future()
    deadline.start(waiter, loop.time())
    assert await asyncio.wait_for(waiter, 60) is False


async def test_a_timer_of_an_earlier_wait_does_not_end_a_later_one() -> None:
    loop, deadline = asyncio.get_running_loop(), Deadline()
    first: asyncio.Future[bool | None] = loop.create_future()
    second: asyncio.Future[bool | None] = loop.create_future()
    early = loop.time() + 0.01
    deadline.start(first, early)
    deadline.end()
    deadline.start(second, early + 3600)
    passed = asyncio.Event()
    loop.call_at(early + 0.01, passed.set)
    await asyncio.wait_for(passed.wait(), 60)
    assert not first.done()
    assert not second.done()
    deadline.cancel()


async def test_a_wait_that_is_due_before_the_timer_sets_it_again() -> None:
    loop, deadline = asyncio.get_running_loop(), Deadline()
    first: asyncio.Future[bool | None] = loop.create_future()
    second: asyncio.Future[bool | None] = loop.create_future()
    deadline.start(first, loop.time() + 3600)
    deadline.start(second, loop.time())
    assert await asyncio.wait_for(second, 60) is False
