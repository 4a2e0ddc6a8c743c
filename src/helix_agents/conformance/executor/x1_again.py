"""X1: a turn that failed can be run again, from its last commit, by exactly one of many callers."""

from __future__ import annotations

import asyncio

from ...errors import AlreadyRunning, ModelError, NotResumable
from ...limits import UsageLimits
from ...llm.scripted import Call, Line, Script, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import check, chunks_of, executing, of_type, simple_agent, transcript


@check(
    "X1",
    "a failed turn is retried from its last commit, in another process, by exactly one of many callers",
    kind="tasks",
)
async def retried(harness: Harness) -> None:
    ran: list[str] = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append("work")
        return "worked"

    agent = simple_agent(work)
    async with executing(
        await harness.open_stores(), ScriptedLLM([[Call("work")], ModelError("out of order")])
    ) as executor:
        result = await executor.run(agent, "Go", session_id="s")
        expect_same([result.status, ran], ["failed", ["work"]], "the failed run")
    stores = await harness.open_stores()
    script: Script = [[Call("work")], "Done."]
    async with executing(stores, ScriptedLLM(script), agents=[agent]) as executor:
        tries = await asyncio.gather(*(executor.retry("s") for _ in range(4)), return_exceptions=True)
        won = [found for found in tries if not isinstance(found, BaseException)]
        expect_same(len(won), 1, "how many retries succeeded")
        expect(all(isinstance(lost, AlreadyRunning | NotResumable) for lost in tries if lost not in won), str(tries))
        result = await won[0].result()
        expect_same([result.status, result.output, result.error], ["completed", "Done.", None], "the result")
        with raises(NotResumable, "retrying a session that has not failed"):
            await executor.retry("s")
    expect_same(ran, ["work"], "what ran: a committed step is not run again")
    roles = [message["role"] for message in await transcript(stores, "s")]
    expect_same(roles, ["user", "assistant", "tool", "assistant"], "the conversation")
    expect_same([run.status for run in await stores.state.list_runs("s")], ["failed", "completed"], "the runs")
    expect_same(of_type(await chunks_of(stores, "s"), "error"), [], "errors on the stream of the turn that succeeded")


@check("X1", "a run that failed at its limits gets the same limits when it is retried, counted from zero")
async def retried_with_limits(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    lines: list[Line] = [[Call("work")] for _ in range(3)]
    agent = simple_agent(work)
    async with executing(stores, ScriptedLLM([*lines, "Done."])) as executor:
        limits = UsageLimits(steps=2)
        result = await executor.run(agent, "Go", session_id="s", limits=limits)
        expect_same(result.status, "failed", "the status at the limit")
        result = await (await executor.retry("s")).result()
        expect_same([result.status, result.output], ["completed", "Done."], "the second try")
    count = sum(message["role"] == "assistant" for message in await transcript(stores, "s"))
    expect_same(count, 4, "the steps of both tries")
