"""X2: runs that end badly while a reply is lost or their process dies. The end is announced once and is the same
everywhere."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import ModelError, StoreUnavailable
from ...executor import Hooks
from ...executor.run.hooks import RunInfo
from ...llm.scripted import Call, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same
from ..harness import Harness
from .harness import Clockwork, Parts, check, chunks_of, make_executor, of_type, simple_agent
from .mortal import Died, Life

PATIENCE_SECONDS = 30


class _LosesReplies:
    """A state store that loses the first reply to the save that ends a run."""

    def __init__(self, inner: Any) -> None:
        self.lost: list[str] = []
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name != "save_state":
            return found

        async def save(session_id: str, state: Any, **options: Any) -> Any:
            answer = await found(session_id, state, **options)
            if state.status == "active" or session_id in self.lost:
                return answer  # a store may detect that it has already written this
            self.lost.append(session_id)
            raise StoreUnavailable("The kit's outage: the reply was lost.")

        return save


@check("X2", "a run still ends normally if the reply to its final save is lost", kind="faults")
async def the_reply_to_the_end_is_lost(harness: Harness) -> None:
    stores = await harness.open_stores()
    flaky: Any = _LosesReplies(stores.state)

    class Stopper(Hooks):
        async def step_started(self, run: RunInfo, step: int) -> None:
            if run.session_id == "interrupted":
                await executor.interrupt("interrupted", "enough")

    llm = ScriptedLLM(lambda request: ModelError("no such model"))
    executor = make_executor(Parts(flaky, stores.streams, stores.usage), llm, poll_seconds=60, hooks=[Stopper()])
    async with executor:
        for status in ("failed", "interrupted"):
            async with asyncio.timeout(PATIENCE_SECONDS):
                result = await (await executor.execute(simple_agent(), "Go", session_id=status)).result()
            expect_same(result.status, status, "the result")
            session, run = await stores.state.load_state(status), await stores.state.get_current_run(status)
            expect_same([session and session.status, run and run.status], [status, status], "the session and its run")
            expect(status in flaky.lost, "no reply was lost")


@check("X2", "if a run dies right after its failure was committed, readers still see the failure, once", kind="faults")
async def dead_after_a_failure(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent, llm = simple_agent(work, max_steps=1), ScriptedLLM([[Call("work")], "never"])
    life = Life(commits=1, apart=True)
    dying = make_executor(life.wrap(stores), llm, clock=clock, lease_seconds=30)
    try:
        await (await dying.execute(agent, "Go", session_id="s")).result()
    except Died:
        await life.bury()
    await dying.close()
    session = await stores.state.load_state("s")
    expect(session is not None and session.status == "failed" and session.error, f"the session is {session}")
    clock.pass_seconds(31)
    async with make_executor(stores, llm, clock=clock, lease_seconds=30) as other:
        result = await (await other.resume(agent, "s")).result()
    expect_same([result.status, result.error], ["failed", session and session.error], "the result")
    told = of_type(await chunks_of(stores, "s"), "step_committed", "error", "output")
    expect_same([chunk["type"] for chunk in told], ["step_committed", "error"], "how the stream reports the end")
    expect_same(told[-1]["error"], session and session.error, "the error on the stream")
    info = await stores.streams.get_stream_info("s")
    expect(info is not None and info.status == "failed", f"the stream is {info and info.status}")


class _DiesWithItsRecord(Life):
    """A process that dies right after it has created the record of a run."""

    def begin(self, name: str = "") -> bool:
        if name == "save_state":
            self.last, self.reply_lost = self.calls + 1, True
        return super().begin(name)


@check("X2", "a takeover from a process that died during its own takeover closes the records of both", kind="faults")
async def dead_while_taking_over(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock, lives = Clockwork(), [Life(commits=1), _DiesWithItsRecord(), Life()]

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], "Done."])
    for number, life in enumerate(lives):
        async with make_executor(life.wrap(stores), llm, clock=clock, lease_seconds=30) as executor:
            try:
                begun = executor.execute(agent, "Go", session_id="s") if number == 0 else executor.resume(agent, "s")
                result = await (await begun).result()
                expect_same([number, result.output], [2, "Done."], "the run that finished, and the output")
            except Died:
                await life.bury()
        clock.pass_seconds(31)
    statuses = [run.status for run in await stores.state.list_runs("s")]
    expect_same(statuses, ["interrupted", "interrupted", "completed"], "the runs")


class _DeletesAtTheEnd:
    """A state store in which a session is deleted as soon as the end of its run is stored."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("save_state", "save_state_and_promote_staging"):
            return found

        async def write(session_id: str, state: Any, *args: Any, **options: Any) -> Any:
            answer = await found(session_id, state, *args, **options)
            if options.get("change_run") is not None and state.status != "active":
                await self._inner.delete_session(session_id)
            return answer

        return write


@check("X2", "a run whose session is deleted as soon as its end is stored still returns its result")
async def deleted_at_the_end(harness: Harness) -> None:
    stores = await harness.open_stores()

    class Stopper(Hooks):
        async def step_started(self, run: RunInfo, step: int) -> None:
            if run.session_id == "interrupted":
                await executor.interrupt("interrupted", "enough")

    deleting: Any = _DeletesAtTheEnd(stores.state)
    replies: dict[str, Any] = {"completed": "Done.", "failed": ModelError("no such model"), "interrupted": "Never."}
    llm = ScriptedLLM(lambda request: replies[request.messages[-1]["content"]])
    executor = make_executor(Parts(deleting, stores.streams, stores.usage), llm, poll_seconds=60, hooks=[Stopper()])
    async with executor:
        for status in replies:
            async with asyncio.timeout(PATIENCE_SECONDS):
                result = await (await executor.execute(simple_agent(), status, session_id=status)).result()
            expect_same(result.status, status, "the result")
