"""KeyedLock: one holder per name, in the order of asking, even if waiting tasks give up."""

from __future__ import annotations

import asyncio

from helix_agents.stores.state.keyed_lock import KeyedLock


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that acquire the lock of one name, record it, and release it when told to."""

    def __init__(self) -> None:
        self.turns = KeyedLock()
        self.noted: list[str] = []
        self.may_leave: dict[str, asyncio.Event] = {}

    def join(self, who: str, name: str = "a") -> asyncio.Task[None]:
        self.may_leave[who] = asyncio.Event()
        return asyncio.create_task(self._visit(who, name))

    async def _visit(self, who: str, name: str) -> None:
        await self.turns.take(name)
        try:
            self.noted.append(who)
            await self.may_leave[who].wait()
        finally:
            self.turns.give(name)

    async def leave(self, who: str) -> None:
        self.may_leave[who].set()
        await settle()


async def test_turns_come_in_the_order_of_asking() -> None:
    crowd = Crowd()
    tasks = [crowd.join(who) for who in "xyz"]
    await settle()
    assert crowd.noted == ["x"]
    await crowd.leave("x")
    assert crowd.noted == ["x", "y"]
    await crowd.leave("y")
    await crowd.leave("z")
    assert crowd.noted == ["x", "y", "z"]
    await asyncio.gather(*tasks)


async def test_names_do_not_wait_for_each_other() -> None:
    crowd = Crowd()
    tasks = [crowd.join("x", "a"), crowd.join("y", "b")]
    await settle()
    assert crowd.noted == ["x", "y"]
    await crowd.leave("x")
    await crowd.leave("y")
    await asyncio.gather(*tasks)


async def test_a_turn_that_is_no_longer_wanted_goes_to_the_next() -> None:
    crowd = Crowd()
    _, tired, patient = tasks = [crowd.join(who) for who in "xyz"]
    await settle()
    tired.cancel()
    await crowd.leave("x")
    assert crowd.noted == ["x", "z"]
    await crowd.leave("z")
    await asyncio.gather(*tasks, return_exceptions=True)
    assert tired.cancelled()
    assert not patient.cancelled()


async def test_a_turn_that_comes_in_the_moment_of_cancellation_is_passed_on() -> None:
    crowd = Crowd()
    _, tired, _ = tasks = [crowd.join(who) for who in "xyz"]
    await settle()
    crowd.may_leave["x"].set()
    await asyncio.sleep(0)  # x passes the lock to y, which has not run yet
    tired.cancel()
    await settle()
    assert crowd.noted == ["x", "z"]
    await crowd.leave("z")
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_name_that_is_free_again_can_be_taken_at_once() -> None:
    crowd = Crowd()
    for who in "xy":
        task = crowd.join(who)
        await settle()
        await crowd.leave(who)
        await task
    assert crowd.noted == ["x", "y"]
