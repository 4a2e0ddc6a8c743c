"""X2, X4: runs that fail or are ended from outside leave a session, a stream and records that agree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...agent import Agent
from ...errors import RunLost
from ...executor import AgentExecutor
from ...llm.scripted import Call, Reply, ScriptedLLM
from ...tools import ToolContext, tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .frozen import Freezer
from .harness import Clockwork, check, custom_state, family, make_executor
from .mortal import Died, Life
from .view import View

LEASE_SECONDS = 30.0
PATIENCE_SECONDS = 60
STATE: dict[str, Any] = {"done": 0, "log": []}


class Unforeseen(Exception):
    """An error that no store is supposed to raise."""


class Fault(Freezer):
    """Lets one call of a process fail, before or after it has happened, with an unexpected error."""

    async def call(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls += 1
        here = self.calls == self._at
        if here:
            self.place = f"the reply of {name}" if self._after else name
        if here and not self._after:
            raise Unforeseen(name)
        answer = await method(*args, **kwargs)
        if here:
            raise Unforeseen(name)
        return self.tap(answer) if name == "create_writer" else answer


def _agent() -> Agent:
    @tool
    async def work(n: int, ctx: ToolContext) -> str:
        """Work."""
        ctx.update_state(lambda draft: draft.increment("done", n))
        await asyncio.sleep(0)
        ctx.update_state(lambda draft: draft["log"].append(n))
        return f"did {n}"

    @tool(execute="client")
    def ask(question: str) -> str:
        """Ask a person."""
        raise NotImplementedError

    below = Agent("below", tools=[work, ask], state=STATE)
    return Agent("main", tools=[work, ask, below.as_tool()], state=STATE)


def _llm() -> ScriptedLLM:
    return ScriptedLLM(
        {
            "main": [
                Reply("First.", [Call("work", {"n": 1}), Call("work", {"n": 2})]),
                [Call("work", {"n": 4}), Call("below", {"input": "help"}), Call("work", {"n": 5})],
                "All done.",
            ],
            "below": [Reply("I help.", [Call("work", {"n": 8})]), "Helped."],
        }
    )


def _asking_llm() -> ScriptedLLM:
    asks = [Call("work", {"n": 4}), Call("ask", {"question": "?"})]
    return ScriptedLLM({"main": [[*asks, Call("below", {"input": "help"})]], "below": [asks]})


def _executor(stores: StoreSet, clock: Clockwork, llm: ScriptedLLM | None = None) -> AgentExecutor:
    return make_executor(stores, llm or _llm(), clock=clock, lease_seconds=LEASE_SECONDS, agents=[_agent()])


async def _run(stores: StoreSet, session_id: str, fault: Fault, clock: Clockwork) -> None:
    """Run with a fault; if the session did not end, continue it without one."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with _executor(fault.wrap(stores), clock) as executor:
            with suppress(Unforeseen, RunLost):
                await (await executor.execute("main", "Go.", session_id=session_id)).result()
        clock.pass_seconds(LEASE_SECONDS + 1)
        async with _executor(stores, clock) as executor:
            exists = await stores.state.session_exists(session_id)
            if exists and (await executor.can_resume(session_id)).can_resume:
                await (await executor.resume("main", session_id)).result()


async def agree(stores: StoreSet, session_id: str, clock: Clockwork, what: str) -> None:
    """Fail unless session, stream, runs and staging agree."""
    for member in await family(stores, session_id):
        session = await stores.state.load_state(member)
        assert session is not None
        expect(session.status in ("completed", "failed"), f"{what}: {member} is {session.status}")
        view = View()
        for stored in await stores.streams.get_all_chunks(session.stream_id):
            view.take(stored.chunk)
        expect_same(view.state(STATE), await custom_state(stores, member), f"{what}: what readers of {member} have")
        running = [run.status for run in await stores.state.list_runs(member) if run.status == "running"]
        expect_same(running, [], f"{what}: runs of {member} without an end")
        verdict = await _executor(stores, clock).can_resume(member)
        expect(not verdict.can_resume, f"{what}: {member} has ended, but can be resumed: {verdict.reason}")
        expect_same(await stores.state.discard_staging(member), 0, f"{what}: rows left in staging of {member}")


@check(
    "X2",
    "after an unexpected fault at any call, readers have the committed state, and nothing is left open",
    kind="faults",
)
async def an_unforeseen_fault(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    counted = Fault()
    await _run(stores, "undisturbed", counted, clock)
    await agree(stores, "undisturbed", clock, "undisturbed")
    places = [(number, after) for number in range(1, counted.calls + 1) for after in (False, True)]
    count = min(len(places), harness.options.steps // 8)
    for number, after in random.Random(harness.options.seed).sample(places, count):
        fault, session_id = Fault(number, after=after), f"fault-{number}-{after}"
        await _run(stores, session_id, fault, clock)
        if await stores.state.session_exists(session_id):
            what = f"a fault at call {number}, {fault.place}"
            await agree(stores, session_id, clock, what)
            await _retry(stores, session_id, clock, what)


async def _retry(stores: StoreSet, session_id: str, clock: Clockwork, what: str) -> None:
    """Run a failed turn again: sub-agents that ended only because of the failure run again as well."""
    sessions = [await stores.state.load_state(member) for member in await family(stores, session_id)]
    cut_off = [each.session_id for each in sessions if each and each.failure_reason == "parent_failed"]
    if sessions[0] is None or sessions[0].status != "failed":
        return
    async with _executor(stores, clock) as executor:
        result = await (await executor.retry(session_id)).result()
    expect_same([result.status, result.output], ["completed", "All done."], f"{what}: the result of another try")
    for member in cut_off:
        session = await stores.state.load_state(member)
        expect(session is not None and session.status == "completed", f"{what}: {member} was not run again")


async def crash(stores: StoreSet, session_id: str, clock: Clockwork, commits: int = 3) -> None:
    """Run until the process dies in the middle of a step, right after its sub-agent's last commit or, with fewer,
    before that."""
    life = Life(commits=commits)
    async with _executor(life.wrap(stores), clock) as executor:
        try:
            await (await executor.execute("main", "Go.", session_id=session_id)).result()
        except Died:
            await life.bury()
    clock.pass_seconds(LEASE_SECONDS + 1)


async def suspend(stores: StoreSet, session_id: str, clock: Clockwork) -> None:
    """Suspend a run and its sub-agent, each with a call that is staged and shown."""
    async with _executor(stores, clock, _asking_llm()) as executor:
        result = await (await executor.execute("main", "Go.", session_id=session_id)).result()
    expect_same(result.status, "suspended_step_partial", "the status of a run suspended with its sub-agent")


@check("X4", "aborting a crashed or suspended session leaves its readers with the committed state")
async def aborted_from_outside(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    for session_id, begin in (("crashed", crash), ("waiting", suspend)):
        await begin(stores, session_id, clock)
        async with _executor(stores, clock) as executor:
            await executor.abort(session_id, "enough")
        await agree(stores, session_id, clock, session_id)
        for member in await family(stores, session_id):
            info = await stores.streams.get_stream_info(member)
            expect(info is None or info.status in ("ended", "failed"), f"{session_id}: the stream of {member} is open")


@check("X4", "a session interrupted after a crash and then resumed leaves its readers with the committed state")
async def interrupted_from_outside(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    for session_id, how in (("resumed", "resume"), ("submitted", "submit")):
        await crash(stores, session_id, clock)
        async with _executor(stores, clock) as executor:
            await executor.interrupt(session_id, "enough")
            await executor.recover()
            session = await stores.state.load_state(session_id)
            expect(
                session is not None and session.status == "interrupted", f"{session_id}: {session and session.status}"
            )
            if how == "resume":
                await executor.resume("main", session_id)
            else:
                await executor.submit("main", [], session_id=session_id)
                await executor.recover()
            handle = await executor.get_handle("main", session_id)
            assert handle is not None
            expect_same((await handle.result()).status, "completed", f"{session_id}: the status")
        await agree(stores, session_id, clock, session_id)


@check("X2", "an abort that dies at any call leaves a crashed session that can be cleaned up", kind="faults")
async def an_abort_that_dies(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    whole = Life()
    await _abort(stores, "undisturbed", whole, clock, commits=2)
    count = min(whole.calls, max(3, harness.options.steps // 16))
    for number in random.Random(harness.options.seed).sample(range(1, whole.calls + 1), count):
        for commits in (2, 3):
            session_id = f"abort-{number}-{commits}"
            await _abort(stores, session_id, Life(number), clock, commits=commits)
            await agree(stores, session_id, clock, f"an abort that died at call {number}")


async def _abort(stores: StoreSet, session_id: str, life: Life, clock: Clockwork, *, commits: int) -> None:
    """Abort a crashed session; if the aborting process dies, let another one clean up."""
    await crash(stores, session_id, clock, commits=commits)
    async with _executor(life.wrap(stores), clock) as executor:
        try:
            await executor.abort(session_id, "enough")
        except Died:
            await life.bury()
            clock.pass_seconds(LEASE_SECONDS + 1)
    async with _executor(stores, clock) as executor:
        if (await executor.can_resume(session_id)).can_resume:
            await (await executor.resume("main", session_id)).result()
