"""A shop whose effects are counted outside of all stores, and people who look them up and respond truthfully."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ...agent import Agent
from ...executor import AgentExecutor, AgentResult
from ...llm.scripted import Call, Script, ScriptedLLM
from ...tools import Done, NotDone, ToolContext, tool
from ..expect import expect
from ..harness import StoreSet
from .harness import Clockwork, make_executor
from .mortal import Died, Life

LEASE_SECONDS = 30.0
MAX_LIVES = 30
SCRIPT: Script = [
    [Call("pay", {"order": "1"}), Call("look", {"what": "a"}), Call("pay", {"order": "2"})],
    [Call("wire", {"order": "3"}), Call("ship", {"item": "socks"})],
    "Paid.",
]
EXPECTED = Counter({"pay 1": 1, "pay 2": 1, "wire 3": 1, "charge socks": 1, "parcel socks": 1})


class Shop:
    """The effects that really happened, and the agent whose tools cause them."""

    def __init__(self, *, check: bool = False, approval: bool = False) -> None:
        self.effects: list[str] = []
        self.asked: list[str] = []
        """The effects that people were asked about."""
        self.life: Life | None = None
        """The process that works now; it may die before or after an effect."""
        self.agent = self._agent(check, approval)

    def happen(self, what: str) -> str:
        """Cause one effect."""
        lost = self.life is not None and self.life.begin("effect")
        self.effects.append(what)
        if lost and self.life is not None:
            self.life.begin()
        return f"did {what}"

    def found(self, what: str) -> Done | NotDone:
        """Look up whether an effect happened."""
        return Done(f"did {what}") if what in self.effects else NotDone()

    def _agent(self, check: bool, approval: bool) -> Agent:
        def looked_up(name: str) -> Callable[[dict[str, Any], str], Any] | None:
            return (lambda arguments, key: self.found(f"{name} {arguments['order']}")) if check else None

        @tool(effect="once", check=looked_up("pay"))
        async def pay(order: str) -> str:
            """Pay."""
            return self.happen(f"pay {order}")

        @tool(effect="once", check=looked_up("wire"), requires_approval=approval)
        def wire(order: str) -> str:
            """Pay, in a thread."""
            return self.happen(f"wire {order}")

        @tool
        async def ship(item: str, ctx: ToolContext) -> list[str]:
            """Cause two effects in one call."""
            ctx.update_state(lambda draft: draft.increment("shipped"))

            async def part(name: str) -> str:
                what = f"{name} {item}"
                found = (lambda arguments, key: self.found(what)) if check else None
                done: str = await ctx.once(name, lambda: self.happen(what), check=found)
                return done

            return [await part("charge"), await part("parcel")]

        @tool(effect="read")
        async def look(what: str) -> str:
            """Look."""
            return what

        return Agent("shop", tools=[pay, wire, ship, look], state={"shipped": 0})

    async def answer(self, executor: AgentExecutor, session_id: str) -> None:
        """Respond truthfully to every question of a suspended session."""
        handle = await executor.get_handle(self.agent, session_id)
        if handle is None or not (await handle.get_state()).status.startswith("suspended"):
            return
        for wait in (await handle.result()).suspended:
            if wait.kind == "approval":
                await executor.submit_tool_result(session_id, wait.tool_call_id, approved=True)
                continue
            expect(wait.effect is not None, f"question {wait} is not about an effect")
            what = " ".join([(wait.effect and wait.effect.part) or wait.tool_name, *wait.input.values()])
            self.asked.append(what)
            answer: dict[str, Any] = {"happened": False}
            if what in self.effects:
                answer = {"happened": True, "result": f"did {what}"}
            await executor.submit_tool_result(session_id, wait.tool_call_id, **answer)


async def keep_shop(
    stores: StoreSet,
    shop: Shop,
    session_id: str,
    lives: list[Life],
    *,
    clock: Clockwork | None = None,
    script: Script = SCRIPT,
    **more: Any,
) -> AgentResult:
    """Run the shop in processes with these lifetimes, one after another; the last attempts do not die."""
    clock = clock or Clockwork()
    options: dict[str, Any] = {"agents": [shop.agent], "clock": clock, "lease_seconds": LEASE_SECONDS, **more}
    for _ in range(MAX_LIVES):
        life = shop.life = lives.pop(0) if lives else Life()
        dying = make_executor(life.wrap(stores), ScriptedLLM(script), **options)
        healthy = make_executor(stores, ScriptedLLM(script), **options)
        try:
            await shop.answer(healthy, session_id)
            run = await stores.state.get_current_run(session_id)
            if run is not None and run.status == "completed":
                return AgentResult("completed", run.output)
            if run is None:
                handle = await dying.execute(shop.agent, "Go", session_id=session_id)
            else:
                handle = await dying.resume(shop.agent, session_id)
            result = await handle.result()
            if result.status in ("completed", "failed"):
                return result
        except Died:
            await life.bury()
        finally:
            await dying.close()
            await healthy.close()
        clock.pass_seconds(LEASE_SECONDS + 1)
    raise AssertionError(f"session {session_id} does not come to an end")
