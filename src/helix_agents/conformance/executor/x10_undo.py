"""X10: the effects of a turn that fails or is aborted are undone: latest first, each exactly once."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from typing import Any

from ...agent import Agent
from ...errors import ModelError
from ...executor import AgentExecutor
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Line, Script, ScriptedLLM
from ...tools import tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, executing, make_executor, transcript
from .mortal import Died, Life
from .shop import LEASE_SECONDS, MAX_LIVES

CAUSES = ("max_steps", "model_error", "aborted")
EXPECTED = ["undo pay 2", "undo ship a", "undo pay 1"]


class Shop:
    """What happened in the world, and an agent whose turns fail after three effects."""

    def __init__(self, cause: str, *, broken: str = "") -> None:
        self.world: list[str] = []
        self.life: Life | None = None
        self.cause, self._broken = cause, broken
        self.asked: list[str] = []

        def take_back(arguments: dict[str, Any], result: Any, key: str) -> None:
            expect(key.endswith(f":{arguments.get('order', '')}") or "item" in arguments, f"the key is {key}")
            self.happen(f"undo {result['did']}")

        @tool(effect="once", key=lambda arguments: arguments["order"], undo=take_back)
        async def pay(order: str) -> dict[str, str]:
            """Pay."""
            return {"did": self.happen(f"pay {order}")}

        @tool(effect="idempotent", undo=take_back)
        def ship(item: str) -> dict[str, str]:
            """Ship."""
            return {"did": self.happen(f"ship {item}")}

        @tool(requires_approval=True)
        async def close_order() -> str:
            """Wait for a person."""
            return "closed"

        limit = 2 if cause == "max_steps" else 10
        self.agent = Agent("undo-shop", tools=[pay, ship, close_order], max_steps=limit)

    def happen(self, what: str) -> str:
        """Cause one effect."""
        if what == self._broken:
            raise ValueError("the bank is closed")
        lost = self.life is not None and self.life.begin("effect")
        self.world.append(what)
        if lost and self.life is not None:
            self.life.begin()
        return what

    def reply(self, request: ModelRequest) -> Line:
        """Pay, ship, pay; then wait for a person, or fail."""
        match sum(message["role"] == "assistant" for message in request.messages):
            case 0:
                return [Call("pay", {"order": "1"}), Call("ship", {"item": "a"})]
            case 1:
                return [Call("pay", {"order": "2"})]
        if self.cause == "model_error":
            raise ModelError("The model is away.")
        return [Call("close_order", {})]

    async def answer(self, executor: AgentExecutor, stores: StoreSet, session_id: str) -> None:
        """Respond truthfully which effects have happened."""
        session = await stores.state.load_state(session_id)
        for wait in [] if session is None else list(session.pending_client_tool_calls.values()):
            if wait.kind != "outcome" or wait.submitted_at is not None:
                continue
            given = wait.input.get("arguments", wait.input)
            what = " ".join([wait.tool_name.replace(":", " "), *given.values()])
            self.asked.append(what)
            answer: dict[str, Any] = {"happened": what in self.world}
            if what in self.world and not what.startswith("undo"):
                answer["result"] = {"did": what}
            await executor.submit_tool_result(session_id, wait.tool_call_id, **answer)


async def _fail(stores: StoreSet, shop: Shop, session_id: str, lives: list[Life]) -> None:
    """Run the shop until its turn has failed, in processes with these lifetimes; the last attempts do not die."""
    clock = Clockwork()
    options: dict[str, Any] = {"agents": [shop.agent], "clock": clock, "lease_seconds": LEASE_SECONDS}
    for _ in range(MAX_LIVES):
        life = shop.life = lives.pop(0) if lives else Life()
        dying = make_executor(life.wrap(stores), ScriptedLLM(shop.reply), **options)
        healthy = make_executor(stores, ScriptedLLM(shop.reply), **options)
        try:
            await shop.answer(healthy, stores, session_id)
            session, run = await stores.state.load_state(session_id), await stores.state.get_current_run(session_id)
            if session is None or run is None:
                await (await dying.execute(shop.agent, "Go", session_id=session_id)).result()
            elif session.status == "failed" and run.status == "failed":
                return
            elif any(wait.kind == "approval" for wait in session.pending_client_tool_calls.values()):
                await dying.abort(session_id, "enough")
                if (handle := await dying.get_handle(shop.agent, session_id)) is not None:
                    await handle.result()
            else:
                await dying.recover()
                if (handle := await dying.get_handle(shop.agent, session_id)) is not None:
                    await handle.result()
        except Died:
            await life.bury()
        finally:
            await dying.close()
            await healthy.close()
        clock.pass_seconds(LEASE_SECONDS + 1)
    raise AssertionError(f"session {session_id} does not come to an end: {shop.world}")


async def _expect_undone(stores: StoreSet, shop: Shop, session_id: str, what: str) -> None:
    undone = [each for each in shop.world if each.startswith("undo")]
    expect_same(undone, EXPECTED, f"{what}: what was undone")
    paid = [each for each in shop.world if each.startswith("pay")]
    expect_same(paid, ["pay 1", "pay 2"], f"{what}: what was paid")
    session = await stores.state.load_state(session_id)
    expect(session is not None, f"{what}: the session is gone")
    if session is not None:
        expect_same([session.status, session.failure_reason], ["failed", shop.cause], f"{what}: the end")


@check("X10", "a turn that fails or is aborted undoes its effects, latest first, and a later turn may repeat them")
async def taken_back(harness: Harness) -> None:
    stores = await harness.open_stores()
    for cause in CAUSES:
        shop = Shop(cause)
        await _fail(stores, shop, cause, [])
        await _expect_undone(stores, shop, cause, cause)
        expect_same(len(shop.world), 6, f"{cause}: how much happened")
        expect_same(shop.asked, [], f"{cause}: what people were asked")
        seen: list[Any] = []

        def again(request: ModelRequest, seen: list[Any] = seen) -> Line:
            seen.append(request.messages)
            return "Done." if request.messages[-1]["role"] == "tool" else [Call("pay", {"order": "1"})]

        async with executing(stores, ScriptedLLM(again), agents=[shop.agent]) as executor:
            result = await executor.run(shop.agent, "Again", session_id=cause)
        expect_same(result.status, "completed", f"{cause}: the next turn")
        expect_same(shop.world[6:], ["pay 1"], f"{cause}: what the next turn did")
        calls = [call["name"] for message in seen[0] for call in message.get("tool_calls", ())]
        expect(not any(name.startswith("undo") for name in calls), f"{cause}: the conversation has the calls {calls}")
        notes = [message["content"] for message in seen[0] if message.get("automatic")]
        expect(len(notes) == 1 and notes[0].count("Taken back.") == 3, f"{cause}: what the model reads: {notes}")


class _DiesUnflagged(Life):
    """A lifetime that ends when its run has planned the undo, and has not cleared the abort flag yet."""

    def begin(self, name: str = "") -> bool:
        """Count a call."""
        if name == "clear_interrupt_flag":
            self.last = self.calls + 1
        return super().begin(name)


@check("X10", "a run aborted while a tool works undoes the earlier effects of its turn, also after a crash")
async def taken_back_at_work(harness: Harness) -> None:
    stores, running = await harness.open_stores(), list[AgentExecutor]()

    @tool
    async def ponder(name: str) -> str:
        """Abort its own run, and wait."""
        await running[-1].abort(name, "enough")
        await running[-1].abort(name, "once more")  # changes nothing
        return "pondered"

    for name, life in (("alive", Life()), ("dead", _DiesUnflagged())):
        shop, clock = Shop("aborted"), Clockwork()
        agent = Agent("undo-shop", tools=[*shop.agent.tools.values(), ponder])
        first = [Call("pay", {"order": "1"}), Call("ship", {"item": "a"})]
        script: Script = [first, [Call("pay", {"order": "2"})], [Call("ponder", {"name": name})]]
        options: dict[str, Any] = {"agents": [agent], "clock": clock, "lease_seconds": LEASE_SECONDS}
        executor = make_executor(life.wrap(stores), ScriptedLLM(script), **options)
        running.append(executor)
        with suppress(Died):
            await executor.run(agent, "Go", session_id=name)
        await executor.close()
        if life.over:
            await life.bury()
            clock.pass_seconds(LEASE_SECONDS + 1)
            async with make_executor(stores, ScriptedLLM(script), **options) as healthy:
                for handle in await healthy.recover():
                    await handle.result()
        session = await stores.state.load_state(name)
        expect_same(session and session.error, "enough", f"{name}: the error")
        await _expect_undone(stores, shop, name, f"aborted at work, {name}")


@check(
    "X10",
    "if the process dies at any point of a failing turn, each effect is undone exactly once, in order",
    kind="faults",
)
async def taken_back_once(harness: Harness) -> None:
    stores = await harness.open_stores()
    rng = random.Random(harness.options.seed)
    for cause in CAUSES:
        life, shop = Life(), Shop(cause)
        await _fail(stores, shop, f"measured {cause}", [life])
        calls = life.calls if cause != "aborted" else life.calls * 2
        points = list(itertools.product(range(3, calls + 4), (False, True)))
        for last, reply_lost in rng.sample(points, min(len(points), harness.options.steps // 12)):
            lives = [Life(last, reply_lost=reply_lost)]
            if rng.random() < 0.5:
                lives += [Life(rng.randrange(3, 30), reply_lost=rng.random() < 0.5) for _ in range(2)]
            plan = ", ".join(f"{one.last}{' (reply lost)' if one.reply_lost else ''}" for one in lives)
            name = f"{cause} {last} {reply_lost}"
            shop = Shop(cause)
            await _fail(stores, shop, name, lives)
            await _expect_undone(stores, shop, name, f"{cause}, dead at {plan} (seed {harness.options.seed})")


@check("X10", "an undo that raises is recorded and does not prevent the other undos from running")
async def undo_fails(harness: Harness) -> None:
    stores, shop = await harness.open_stores(), Shop("max_steps", broken="undo ship a")
    async with executing(stores, ScriptedLLM(shop.reply), agents=[shop.agent]) as executor:
        result = await executor.run(shop.agent, "Go", session_id="s")
    expect_same([result.status, result.failure_reason], ["failed", "max_steps"], "the result")
    expect_same(shop.world[3:], ["undo pay 2", "undo pay 1"], "what was undone")
    expect(any("the bank is closed" in warning for warning in result.warnings), f"the warnings: {result.warnings}")
    told = [message for message in await transcript(stores, "s") if message["role"] == "tool"][-3:]
    expect_same([message["success"] for message in told], [True, False, True], "what the conversation records")


@check("X10", "an undo with an unknown outcome is asked about, and earlier effects wait for the response")
async def undo_unknown(harness: Harness) -> None:
    stores, shop = await harness.open_stores(), Shop("max_steps")
    life = Life()
    happen = shop.happen

    def dying(what: str) -> str:
        if what == "undo ship a" and shop.life is life:
            life.last, life.reply_lost = life.calls + 1, True
        return happen(what)

    shop.happen = dying  # type: ignore[method-assign]
    await _fail(stores, shop, "s", [life])
    expect_same(shop.asked, ["undo ship a"], "what people were asked")
    await _expect_undone(stores, shop, "s", "dead after one undo")
