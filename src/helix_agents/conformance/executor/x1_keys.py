"""X1: repeating a request with its idempotency key starts nothing new, however often it is repeated and wherever its
process died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...agent import Agent
from ...errors import HelixError, IdempotencyConflict
from ...executor import AgentExecutor, Hooks
from ...executor.run.hooks import RunInfo
from ...llm.scripted import ScriptedLLM
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Clockwork, Parts, check, executing, make_executor, simple_agent, transcript
from .mortal import Died, Life
from .x9_standing import Gated

LEASE_SECONDS = 30.0
MOST_CALLS = 40


def said_back() -> ScriptedLLM:
    """Return a model that replies in every turn."""
    return ScriptedLLM(lambda request: f"You said: {request.messages[-1]['content']}")


async def questions(stores: StoreSet, session_id: str) -> list[str]:
    """Return the messages of the user."""
    return [message["content"] for message in await transcript(stores, session_id) if message["role"] == "user"]


@check("X1", "an idempotency key returns the run that it started")
async def a_key_gives_the_run_that_it_started(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, said_back()) as executor:
        first = await executor.execute(agent, "one", session_id="s", idempotency_key="k1")
        again = await executor.execute(agent, "one", session_id="s", idempotency_key="k1")
        expect_same(again.run_id, first.run_id, "the run of the same key, while it runs")
        await first.result()
        second = await executor.execute(agent, "two", session_id="s", idempotency_key="k2")
        await second.result()
    async with executing(await harness.open_stores(), said_back()) as elsewhere:
        late = await elsewhere.execute(agent, "one", session_id="s", idempotency_key="k1")
        expect_same(late.run_id, first.run_id, "the run of the same key, in another process, turns later")
    expect_same(await questions(stores, "s"), ["one", "two"], "the user's messages")


@check("X1", "a request with only an idempotency key finds its session")
async def a_key_without_a_session_finds_its_session(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, said_back()) as executor:
        first = await executor.execute(agent, "one", user_id="alice", idempotency_key="k")
        again = await executor.execute(agent, "one", user_id="alice", idempotency_key="k")
        other = await executor.execute(agent, "one", user_id="bob", idempotency_key="k")
        expect_same((again.session_id, again.run_id), (first.session_id, first.run_id), "session and run")
        expect(other.session_id != first.session_id, "another user's key leads to another session")
        await asyncio.gather(first.result(), other.result())


@check("X1", "an idempotency key that is used with another request is rejected")
async def a_key_with_another_request_is_refused(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, said_back()) as executor:
        await (await executor.execute(agent, "one", session_id="s", idempotency_key="k")).result()
        with raises(IdempotencyConflict, "the key with another request"):
            await executor.execute(agent, "two", session_id="s", idempotency_key="k")
    expect_same(await questions(stores, "s"), ["one"], "the user's messages")


@check("X1", "of many requests with one key, exactly one starts a run")
async def of_many_requests_with_one_key_one_starts_a_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    executors = [make_executor(stores, said_back()) for _ in range(4)]
    try:
        handles = await asyncio.gather(
            *(executor.execute(agent, "one", session_id="s", idempotency_key="k") for executor in executors)
        )
        expect_same(len({handle.run_id for handle in handles}), 1, "runs")
        await asyncio.gather(*(handle.result() for handle in handles))
    finally:
        for executor in executors:
            await executor.close()
    expect_same(await questions(stores, "s"), ["one"], "the user's messages")


@check("X1", "an idempotency key still counts, wherever the process died", kind="faults")
async def a_key_holds_wherever_the_process_died(harness: Harness) -> None:
    """Die at the n-th call, before or after it takes effect; send the request again; it must happen once."""
    stores = await harness.open_stores()
    agent = simple_agent()
    for lost in (False, True):
        for last in range(1, MOST_CALLS):
            session_id = f"s-{last}-{lost}"
            life = Life(last, reply_lost=lost)
            clock = Clockwork()
            options: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "clock": clock}
            mortal = make_executor(life.wrap(stores), said_back(), **options)
            try:
                handle = await mortal.execute(agent, "one", session_id=session_id, idempotency_key="k")
                await handle.result()
            except Died:
                pass
            finally:
                await mortal.close()
            await life.bury()
            clock.pass_seconds(LEASE_SECONDS + 1)
            async with executing(stores, said_back(), **options) as executor:
                await _recover(executor, agent, session_id)
                again = await executor.execute(agent, "one", session_id=session_id, idempotency_key="k")
                if (await again.can_resume()).can_resume:
                    again = await again.resume()
                expect_same((await again.result()).output, "You said: one", f"the output after a death at {last}")
                await executor.execute(agent, "one", session_id=session_id, idempotency_key="k")
            expect_same(await questions(stores, session_id), ["one"], f"the user's messages after a death at {last}")
            if not life.over:
                break


@check("X1", "the key of a run whose process died returns that run, from its start, whichever process continues it")
async def a_key_returns_its_run_after_a_death(harness: Harness) -> None:
    stores, agent = await harness.open_stores(), simple_agent()
    for session_id, resumed_first in (("resumed", True), ("asked again", False)):
        clock, llm = Clockwork(), Gated(["Never said."])
        options: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "clock": clock}
        dead = make_executor(stores, llm, **options)
        began = await dead.execute(agent, "one", session_id=session_id, idempotency_key="k")
        await llm.reached.wait()
        await dead.close()
        clock.pass_seconds(LEASE_SECONDS + 1)
        async with executing(stores, said_back(), **options) as executor:
            if resumed_first:
                await _recover(executor, agent, session_id)
            again = await executor.execute(agent, "one", session_id=session_id, idempotency_key="k")
            names = (again.run_id, again.start_sequence)
            expect_same(names, (began.run_id, began.start_sequence), f"{session_id}: the run and its start")
            shown = [chunk["type"] async for chunk in again.stream()]
            expect("user_message" in shown, f"{session_id}: the stream does not start with the turn: {shown}")
            expect_same((await again.result()).output, "You said: one", f"{session_id}: the output")


class _Replaced:
    """A state store in which another user's session takes the place of one whose runs have just been read."""

    def __init__(self, inner: Any, replace: Callable[[], Awaitable[None]]) -> None:
        self._inner, self._replace = inner, replace
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return self._list_runs if name == "list_runs" else getattr(self._inner, name)

    async def _list_runs(self, session_id: str) -> Any:
        self._calls += 1
        runs = await self._inner.list_runs(session_id)
        if self._calls == 1:
            await self._replace()
        return runs


@check("X1", "a key does not continue a session that another user has created under the id in the meantime")
async def a_key_leaves_the_session_of_another_user(harness: Harness) -> None:
    stores, agent, clock = await harness.open_stores(), simple_agent(), Clockwork()
    options: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "clock": clock}
    for users in (("ann", "bob"), (None, "bob"), ("ann", "ann")):
        session_id = f"of {users}"

        async def leave_a_dead_run(user_id: str | None, key: str) -> None:
            dead = make_executor(stores, llm := Gated(["Never said."]), **options)
            await dead.execute(agent, key, session_id=session_id, user_id=user_id, idempotency_key=key)  # noqa: B023
            await llm.reached.wait()
            await dead.close()
            clock.pass_seconds(LEASE_SECONDS + 1)

        async def replace() -> None:
            await stores.state.delete_session(session_id)  # noqa: B023
            await leave_a_dead_run(users[1], "another")  # noqa: B023

        await leave_a_dead_run(users[0], "k")
        overtaken: Any = _Replaced(stores.state, replace)
        async with executing(Parts(overtaken, stores.streams, stores.usage), said_back(), **options) as executor:
            with raises(HelixError, f"{session_id}: the request"):
                again = await executor.execute(
                    agent, "k", session_id=session_id, user_id=users[0], idempotency_key="k", if_exists="reject"
                )
                await again.result()
        expect_same(await questions(stores, session_id), ["another"], f"{session_id}: the messages of its user")
        expect_same(len(await transcript(stores, session_id)), 1, f"{session_id}: the messages")


class _DiesAt(Life):
    """A process that dies at its first call of a method, or right after it."""

    def __init__(self, method: str, *, reply_lost: bool) -> None:
        super().__init__()
        self._method = method
        self._after = reply_lost

    def begin(self, name: str = "") -> bool:
        if name == self._method:
            self.last, self.reply_lost = self.calls + 1, self._after
        return super().begin(name)


@check("X1", "an idempotency key still counts if the process that took over from a dead one also dies", kind="faults")
async def a_key_holds_over_two_deaths(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent, clock = simple_agent(), Clockwork()

    class Stopper(Hooks):
        async def step_started(self, run: RunInfo, step: int) -> None:
            await first.interrupt(run.session_id, "wait")

    options: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "clock": clock, "poll_seconds": 60}
    for session_id, others_go_on in (("taken up", True), ("asked again", False)):
        # Dies before the run's record is marked as interrupted, and dies before a new record exists.
        lives = [_DiesAt("save_state", reply_lost=True), _DiesAt("save_state_and_promote_staging", reply_lost=True)]
        first = make_executor(lives[0].wrap(stores), said_back(), hooks=[Stopper()], **options)
        second = make_executor(lives[1].wrap(stores), said_back(), **options)
        for executor, life, text, key in ((first, lives[0], "zero", None), (second, lives[1], "one", "k")):
            with raises(Died, f"sending {text}"):
                await (await executor.execute(agent, text, session_id=session_id, idempotency_key=key)).result()
            await life.bury()
            await executor.close()
            clock.pass_seconds(LEASE_SECONDS + 1)
        async with executing(stores, said_back(), **options) as executor:
            if others_go_on:
                await _recover(executor, agent, session_id)
            again = await executor.execute(agent, "one", session_id=session_id, idempotency_key="k")
            expect_same((await again.result()).output, "You said: one", f"{session_id}: the output")
        expect_same(await questions(stores, session_id), ["zero", "one"], f"{session_id}: the user's messages")


async def _recover(executor: AgentExecutor, agent: Agent, session_id: str) -> None:
    """Continue a session whose process died, as a worker that does not know the key does."""
    handle = await executor.get_handle(agent, session_id)
    if handle is not None and (await handle.can_resume()).can_resume:
        await (await handle.resume()).result()
