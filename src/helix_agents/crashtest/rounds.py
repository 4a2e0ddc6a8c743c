"""Rounds of a crash test: one run of the agent, stopped at chosen points and continued until it ends.

A point is a call to a store, before or after which the process dies, or the body of a tool. "Dead" means that nothing
reaches the stores any more; with `killing.py` it means SIGKILL.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from ..backends.registry import Stores, open_stores
from ..codec import Json
from ..conformance.executor.harness import Clockwork
from ..conformance.executor.mortal import Died, Life
from ..errors import InvalidArgument
from ..executor import AgentExecutor
from ..tools import Tool, ToolContext
from ..tools.tool import UNDO_PREFIX
from ..types import PendingClientToolCall
from .report import UNSAID, Effect, Report

MAX_LIVES = 30
SECOND_DEATH = 9
"""The point at which a recovering process dies again."""
SESSION_ID = "crashtest"

Factory = Callable[[Any], AgentExecutor]
Answer = Callable[[PendingClientToolCall], dict[str, Json]]
"""Answers an approval or a client tool: returns the arguments of `submit_tool_result`."""


def default_answer(question: PendingClientToolCall) -> dict[str, Json]:
    """Approve, and answer client tools with an empty result."""
    return {"approved": True} if question.kind == "approval" else {"result": None}


class Journal:
    """What really happened in one round, recorded outside of all stores."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.asked: list[str] = []
        self.with_parts: set[str] = set()
        """The tools whose effects are recorded part by part."""

    def add(self, effect: Effect) -> None:
        """Record an effect."""
        self.effects.append(effect)

    def ask(self, name: str) -> None:
        """Record a question about an outcome."""
        self.asked.append(name)

    def found(self, question: PendingClientToolCall) -> dict[str, Json]:
        """Return the truth about a call whose outcome is unknown."""
        part = question.effect.part if question.effect else None
        for effect in self.effects:
            if (effect.tool_call_id, effect.part) == (question.tool_call_id, part):
                return {"happened": True, "result": effect.result}
        return {"happened": False}


def lives_of(points: int, every: int) -> Iterator[tuple[str, list[Life]]]:
    """Yield each point of death, with the processes of a round that dies there: once, and again during recovery."""
    for point in range(1, points + 1, every):
        for reply_lost in (False, True):
            for again in (False, True):
                place = (
                    f"point {point}{' (reply lost)' if reply_lost else ''}{', again while recovering' if again else ''}"
                )
                yield place, [Life(point, reply_lost=reply_lost), *([Life(SECOND_DEATH)] if again else [])]


class Stage:
    """Prepares the user's executors for a round: their clock, journal and point of death."""

    def __init__(self, make: Factory, agent: str, input: str, answer: Answer) -> None:
        self.make = make
        self.agent = agent
        self.input = input
        self.answer = answer
        self._watched: list[Tool] = []

    def executor(self, stores: Any, clock: Clockwork, journal: Journal, life: Life | None) -> AgentExecutor:
        """Return an executor whose tools report their effects, and may die before or after them."""
        executor = self.make(stores)
        if not isinstance(executor, AgentExecutor):
            raise InvalidArgument(f"make_executor must return an AgentExecutor, not {type(executor).__name__}.")
        for services in (executor.services, executor.services.for_runs):
            object.__setattr__(services, "clock", clock)
        if self.agent not in executor.agents:
            raise InvalidArgument(f"The executor does not know agent {self.agent!r}: give it agents=[...].")
        for agent in executor.agents:
            for tool in agent.tools.values():
                self._watched.append(tool)
                tool.run = _watched(tool, journal, life)  # type: ignore[method-assign,assignment]
                tool.as_undo = partial(_watched_undo, tool, journal, life)  # type: ignore[method-assign]
        return executor

    def release(self) -> None:
        """Restore the original tools."""
        for tool in self._watched:
            for name in ("run", "as_undo"):
                tool.__dict__.pop(name, None)

    def kinds(self, executor: AgentExecutor) -> dict[str, str]:
        """Return the declared effect of each tool."""
        tools = [tool for agent in executor.agents for tool in agent.tools.values()]
        undone: dict[str, str] = {UNDO_PREFIX + tool.name: "once" for tool in tools if tool.effects.undo is not None}
        return {tool.name: tool.effects.kind or ("read" if tool.idempotent else UNSAID) for tool in tools} | undone

    async def live(self, stores: Stores, clock: Clockwork, journal: Journal, life: Life, name: str) -> str | None:
        """Let one process continue the session; return its final status, or None if there is more to do. Raises
        `Died`."""
        helper = self.executor(stores, clock, journal, None)
        executor = self.executor(life.wrap(stores), clock, journal, life)
        try:
            await self._answer_all(helper, journal, name)
            run = await helper.services.store.get_current_run(name)
            if run is not None and run.status in ("completed", "failed"):
                return run.status
            if run is None:
                handle = await executor.execute(self.agent, self.input, session_id=name)
            else:
                handle = await executor.resume(self.agent, name)
            status = (await handle.result()).status
            if not await stores.state.session_exists(name):
                raise InvalidArgument("make_executor must use the stores it is given: faults are injected there.")
            return status if status in ("completed", "failed") else None
        finally:
            await executor.close()
            await helper.close()

    async def _answer_all(self, executor: AgentExecutor, journal: Journal, name: str) -> None:
        handle = await executor.get_handle(self.agent, name)
        if handle is None or not (await handle.get_state()).status.startswith("suspended"):
            return
        for question in (await handle.result()).suspended:
            if question.kind == "outcome":
                part = question.effect.part if question.effect else None
                journal.ask(question.tool_name if part is None else f"{question.tool_name}.{part}")
                answer = journal.found(question)
            else:
                answer = self.answer(question)
            await executor.submit_tool_result(name, question.tool_call_id, **answer)


def _watched_undo(tool: Tool, journal: Journal, life: Life | None) -> Tool | None:
    """Return the tool that undoes an effect of another one, instrumented in the same way."""
    made = Tool.as_undo(tool)
    if made is None:
        return None
    undo = made

    async def run(arguments: dict[str, Any], context: ToolContext) -> Json:
        lost = life is not None and life.begin("undo")
        result = await Tool.run(undo, arguments, context)
        journal.add(Effect(undo.name, context.tool_call_id, arguments["arguments"], None, result))
        if lost and life is not None:
            life.begin()
        return result

    made.run = run  # type: ignore[method-assign]
    return made


def _watched(tool: Tool, journal: Journal, life: Life | None) -> Callable[..., Awaitable[Json]]:
    """Return the tool's `run` with its effects written to the journal; the process may die before or after each."""

    async def run(arguments: dict[str, Any], context: ToolContext) -> Json:
        once = context.once

        async def watched_once(name: str, function: Callable[[], Any], *, check: Any = None) -> Any:
            journal.with_parts.add(tool.name)

            async def part() -> Any:
                lost = life is not None and life.begin("part")
                made = function()
                result = await made if inspect.isawaitable(made) else made
                journal.add(Effect(tool.name, context.tool_call_id, arguments, name, result))
                if lost and life is not None:
                    life.begin()
                return result

            return await once(name, part, check=check)

        context.once = watched_once  # type: ignore[method-assign]
        lost = life is not None and life.begin("tool")
        result = await Tool.run(tool, arguments, context)
        if tool.name not in journal.with_parts:
            journal.add(Effect(tool.name, context.tool_call_id, arguments, None, result))
        if lost and life is not None:
            life.begin()
        return result

    return run


async def crashtest(
    make: Factory,
    agent: str,
    input: str,
    *,
    reset: Callable[[], object] | None = None,
    answer: Answer = default_answer,
    every: int = 1,
) -> Report:
    """Kill the agent at every durable point, with the write lost and with its reply lost, and count the effects.

    `make(stores)` returns an executor on these stores, with a model that says the same each time. `reset` puts the
    world outside back to how it was; it is called before each round. People answer questions about outcomes truthfully,
    and others by `answer`. `every`: try only every n-th point.
    """
    stage, measured, calm = Stage(make, agent, input, answer), Life(), Journal()
    try:
        ending, kinds = await _round(stage, calm, [measured], reset)
        report = started(ending, kinds, measured.calls)
        for place, lives in lives_of(measured.calls, every):
            journal, kills = Journal(), len(lives)
            status, _ = await _round(stage, journal, lives, reset)
            report.kills += kills - len(lives)
            report.add(place, status, calm.effects, journal.effects, journal.asked)
    finally:
        stage.release()
    return report


def started(ending: str, kinds: dict[str, str], points: int) -> Report:
    """Return the report of a new test, after its undisturbed round."""
    report = Report(points, ending)
    report.start(kinds)
    return report


async def _round(
    stage: Stage, journal: Journal, lives: list[Life], reset: Callable[[], object] | None
) -> tuple[str, dict[str, str]]:
    if reset is not None:
        reset()
    clock = Clockwork()
    async with open_stores("memory:") as stores:
        kinds = stage.kinds(stage.make(stores))
        for _ in range(MAX_LIVES):
            life = lives.pop(0) if lives else Life()
            try:
                status = await stage.live(stores, clock, journal, life, SESSION_ID)
                if status is not None:
                    return status, kinds
            except Died:
                await life.bury()
            clock.pass_seconds(3600)
    return "unfinished", kinds


async def assert_crash_safe(make: Factory, agent: str, input: str, **options: Any) -> Report:
    """Raise `AssertionError` with the report if a crash doubles or loses an effect, or leaves the run without an end.

    Takes what `crashtest` takes. Tools with `effect="read"` and `"idempotent"` may run again.
    """
    report = await crashtest(make, agent, input, **options)
    assert report.is_clean, f"Not safe against crashes: {report}"
    return report
