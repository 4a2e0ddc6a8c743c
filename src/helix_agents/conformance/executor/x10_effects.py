"""X10: effects that happen once. Wherever a process dies or freezes, none is duplicated, none is lost, and every
unknown one is asked about."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from ...errors import AlreadyRunning, IllegalTransition, NotResumable, RunLost, StreamFenced
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .frozen import Freezer
from .harness import Clockwork, check, custom_state, make_executor, simple_agent, transcript
from .mortal import Life
from .shop import EXPECTED, LEASE_SECONDS, SCRIPT, Shop, keep_shop

TOLD = ["did pay 1", "a", "did pay 2", "did wire 3", '["did charge socks","did parcel socks"]']


async def _expect_kept(stores: StoreSet, shop: Shop, session_id: str, what: str) -> None:
    """Fail unless effects, conversation and state are as if nothing had gone wrong."""
    expect_same(Counter(shop.effects), EXPECTED, f"{what}: the effects")
    told = [message["content"] for message in await transcript(stores, session_id) if message["role"] == "tool"]
    expect_same(told, TOLD, f"{what}: what the model saw")
    expect_same(await custom_state(stores, session_id), {"shipped": 1}, f"{what}: custom state")


async def _measure(stores: StoreSet) -> int:
    life, shop = Life(), Shop()
    await keep_shop(stores, shop, "measured", [life])
    await _expect_kept(stores, shop, "measured", "undisturbed")
    expect_same(shop.asked, [], "what people were asked without a crash")
    return life.calls


@check("X10", "a process that dies at any store call or effect neither duplicates nor loses an effect", kind="faults")
async def dead_at_any_point(harness: Harness) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)
    calls = await _measure(stores)
    for number in range(harness.options.steps // 8):
        looks_up, approval = rng.random() < 0.4, rng.random() < 0.4
        lives = [
            Life(rng.randrange(3, calls + 8), reply_lost=rng.random() < 0.5) for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        plan = ", ".join(f"{one.last}{' (reply lost)' if one.reply_lost else ''}" for one in lives)
        more: Any = {"durability": "step"} if rng.random() < 0.2 else {}
        what = f"dead at {plan}, check={looks_up}, approval={approval}, {more} (seed {harness.options.seed})"
        shop = Shop(check=looks_up, approval=approval)
        result = await keep_shop(stores, shop, f"case {number}", lives, **more)
        expect_same(result.status, "completed", f"{what}: the status")
        await _expect_kept(stores, shop, f"case {number}", what)
        expect(not (looks_up and shop.asked), f"{what}: people were asked although the lookups know: {shop.asked}")


@check(
    "X10",
    "an effect whose process dies just before or after it runs is looked up or asked about, exactly once",
    kind="faults",
)
async def dead_at_each_effect(harness: Harness) -> None:
    stores = await harness.open_stores()
    cases = itertools.product(EXPECTED, (False, True), (False, True), (False, True))
    for number, (what, looks_up, approval, happened) in enumerate(cases):
        life, shop, name = Life(), Shop(check=looks_up, approval=approval), f"case {number}"
        _die_at(shop, life, what, happened=happened)
        await keep_shop(stores, shop, name, [life, *([life] if approval else [])])
        place = f"dead {'after' if happened else 'before'} {what}, check={looks_up}, approval={approval}"
        await _expect_kept(stores, shop, name, place)
        siblings = {"pay 1", "pay 2"} if what.startswith("pay") else {"wire 3", "charge socks", "parcel socks"}
        expect(set(shop.asked) <= siblings, f"{place}: other steps were asked about: {shop.asked}")
        expect_same(what in shop.asked, not looks_up, f"{place}: whether people were asked")
        expect_same(max(Counter(shop.asked).values(), default=1), 1, f"{place}: how often they were asked")


def _die_at(shop: Shop, life: Life, what: str, *, happened: bool) -> None:
    """Let the process die at one effect: just before it happens, or just after."""
    happen = shop.happen

    def dying(effect: str) -> str:
        if effect == what and shop.life is life:
            life.last, life.reply_lost = life.calls + 1, happened
        return happen(effect)

    shop.happen = dying  # type: ignore[method-assign,assignment]


@check("X10", "a process that freezes at any call and is taken over causes no effect twice", kind="faults")
async def frozen_at_any_call(harness: Harness) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)
    calls = await _measure(stores)
    points = [Freezer(at, after=after) for at in range(3, calls) for after in (False, True)]
    intents = [Freezer(on="stage_calls", after=True, skip=skip) for skip in range(6)]
    for number, freezer in enumerate([*intents, *rng.sample(points, min(len(points), harness.options.steps // 10))]):
        shop, clock, name = Shop(), Clockwork(), f"frozen {number}"
        options: dict[str, Any] = {"agents": [shop.agent], "clock": clock, "lease_seconds": LEASE_SECONDS}
        sleeper = make_executor(freezer.wrap(stores), ScriptedLLM(SCRIPT), **options)

        async def sleep_and_wake(executor: Any = sleeper, name: str = name, shop: Shop = shop) -> None:
            with suppress(RunLost, AlreadyRunning, NotResumable, StreamFenced, IllegalTransition):
                await (await executor.execute(shop.agent, "Go", session_id=name)).result()

        task = asyncio.create_task(sleep_and_wake())
        frozen = asyncio.create_task(freezer.frozen.wait())
        await asyncio.wait({task, frozen}, return_when=asyncio.FIRST_COMPLETED)
        frozen.cancel()
        clock.pass_seconds(LEASE_SECONDS + 1)
        if await stores.state.session_exists(name):
            result = await keep_shop(stores, shop, name, [], clock=clock)
            expect_same(result.status, "completed", f"frozen at {freezer.place}: the status")
        freezer.wake()
        await task
        await sleeper.close()
        await _expect_kept(stores, shop, name, f"frozen at {freezer.place}")


class _Writes(Life):
    """A lifetime that counts the writes to the session."""

    count = 0

    def begin(self, name: str = "") -> bool:
        """Count a call."""
        self.count += name in ("stage_calls", "save_state", "save_state_and_promote_staging")
        return super().begin(name)


@check("X10", "a call that must happen once costs no more writes than any other; after an approval it costs one more")
async def costs_of_intents(harness: Harness) -> None:
    stores = await harness.open_stores()
    counted: dict[tuple[str | None, bool], int] = {}
    for effect in (None, "once"):
        for approval in (False, True):

            @tool(effect=effect, requires_approval=approval)
            async def pay(order: str) -> str:
                """Pay."""
                return order

            life, name, agent = _Writes(), f"{effect} {approval}", simple_agent(pay)
            script: Script = [[Call("pay", {"order": "1"})], "Done."]
            async with make_executor(life.wrap(stores), ScriptedLLM(script), poll_seconds=60) as executor:
                result = await executor.run(agent, "Go", session_id=name)
                for wait in result.suspended:
                    await executor.submit_tool_result(name, wait.tool_call_id, approved=True)
                    result = await (await executor.resume(agent, name)).result()
            expect_same(result.status, "completed", "the status")
            counted[effect, approval] = life.count
    expect_same(counted["once", False], counted[None, False], "writes, without approval")
    expect(counted["once", True] <= counted[None, True] + 1, f"writes: {counted}")
