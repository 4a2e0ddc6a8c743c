"""X9: what may be done with a session is decided once. Each check is a case in which callers could disagree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ...errors import AlreadyRunning, HelixError, ModelError, NotResumable, SessionNotFound
from ...executor import AgentExecutor, Stepper
from ...limits import UsageLimits
from ...llm.contract import ModelEvent, ModelRequest
from ...llm.scripted import Call, Line, ScriptedLLM
from ...stores.state.delegating import DelegatingStateStore
from ...tools.tool import tool
from ...types import RunRecord
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, chunks_of, executing, make_executor, of_type, simple_agent, transcript
from .mortal import Life

PATIENCE_SECONDS = 20.0


class Gated(ScriptedLLM):
    """A model that waits before its n-th reply."""

    def __init__(self, script: list[Line], at: int = 1) -> None:
        super().__init__(script)
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self._left = at

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self.go.wait()
        async for event in super().stream(request):
            yield event


@tool
async def work() -> str:
    """Work."""
    return "ok"


@tool(execute="client")
def ask() -> str:
    """Ask a client."""
    raise NotImplementedError


async def _crashed(stores: StoreSet, clock: Clockwork, session_id: str, **options: Any) -> None:
    """Create a session whose process died while it called the model."""
    llm = Gated(["Never said."])
    dead = make_executor(stores, llm, clock=clock)
    await dead.execute(simple_agent(), "Go", session_id=session_id, **options)
    await llm.reached.wait()
    await dead.close()
    clock.pass_seconds(60)


@check("X9", "until it stops, only its engine can continue an engine's run; the error names that engine")
async def run_of_an_engine(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(ask, work)
    llm = ScriptedLLM([[Call("ask")], [Call("work")], "Done."])
    async with executing(stores, llm, agents=[agent]) as executor:
        stepper = Stepper(executor, engine="clockwork")
        ticket = await stepper.begin(agent, "Go", session_id="s")
        with raises(NotResumable, "resume() of a run that waits for its engine") as caught:
            await executor.resume(agent, "s")
        expect("clockwork" in str(caught.error), f"the error does not name the engine: {caught.error}")
        with raises(AlreadyRunning, "execute() of a run that waits for its engine"):
            await executor.execute(agent, "More", session_id="s")
        expect_same(await executor.recover(), [], "what workers continue")
        ticket = await stepper.step(agent, ticket)
        call = next(iter((await stores.state.load_state("s")).pending_client_tool_calls))  # type: ignore[union-attr]
        await executor.submit_tool_result("s", call, result="x")
        expect(not (await executor.can_resume("s")).can_resume, "the server could continue the engine's run")
        expect_same(await executor.recover(), [], "what workers continue after the response")
        while not (ticket := await stepper.step(agent, ticket)).done:
            pass
    expect_same(ticket.output, "Done.", "the output")


@check("X9", "a session without a run is interrupted and aborted immediately, without waiting")
async def without_a_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["One.", "Two."])) as executor, asyncio.timeout(PATIENCE_SECONDS):
        await stores.state.create_session("made", agent_type="main", custom_state={})
        handle = await executor.execute(agent, "Go", session_id="made", idempotency_key="k", if_running="interrupt")
        expect_same((await handle.result()).status, "completed", "execute(if_running='interrupt') with a key")
        await executor.run(agent, "Go", session_id="s")
        first = (await stores.state.list_checkpoints("s")).items[-1]
        await executor.restore("s", first.checkpoint_id)
        await executor.abort("s", "stop")
        session = await stores.state.load_state("s")
        expect_same([session and session.status, session and session.interrupt_flag], ["failed", None], "after abort")


@check("X9", "a session that was suspended and not closed is closed by recovery; readers do not wait", kind="faults")
async def suspended_and_not_closed(harness: Harness) -> None:
    stores, clock, life = await harness.open_stores(), Clockwork(), Life(commits=1, apart=True)
    agent = simple_agent(ask)
    dying = make_executor(life.wrap(stores), ScriptedLLM([[Call("ask")], "Done."]), clock=clock)
    with raises(HelixError, "a process that dies after the suspension"):
        await dying.run(agent, "Go", session_id="s")
    await life.bury()
    await dying.close()
    clock.pass_seconds(60)
    async with executing(stores, ScriptedLLM(["Done."]), clock=clock, agents=[agent]) as executor:
        await executor.recover()
        handle = await executor.get_handle(agent, "s")
        assert handle is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            types = [chunk["type"] async for chunk in handle.stream(from_sequence=0)]
    run = await stores.state.get_current_run("s")
    expect("client_tool_request" in types, f"the readers have {types}")
    expect_same(run and run.status, "suspended_client_tool", "the record of the run")


@check("X9", "execute and submit behave alike after a process died and after a checkpoint was restored")
async def execute_and_submit(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent = simple_agent()
    for how in ("execute", "submit"):
        await _crashed(stores, clock, how)
        async with executing(stores, ScriptedLLM(["Done.", "More."]), clock=clock, agents=[agent]) as executor:
            await getattr(executor, how)(agent, "More", session_id=how)
            for handle in await executor.recover():
                await handle.result()
            latest = await executor.get_handle(agent, how)
            assert latest is not None
            expect_same((await latest.result()).status, "completed", f"{how} after a crash")
            restored = f"{how} restored"
            await executor.run(agent, "Go", session_id=restored)
            first = (await stores.state.list_checkpoints(restored)).items[-1]
            await stores.state.restore_checkpoint(restored, first.checkpoint_id)
            await getattr(executor, how)(agent, "More", session_id=restored)


@check("X9", "a restore ends the queued run that it undoes, and the submitter never gets another turn's output")
async def restored_under_a_queued_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["One.", "Two."]), agents=[agent]) as executor:
        await executor.run(agent, "Go", session_id="s")
        end = (await stores.state.list_checkpoints("s")).items[0]
        handle = await executor.submit(agent, "Second", session_id="s")
        await executor.restore("s", end.checkpoint_id)
        await executor.recover()
        result = await handle.result()
    runs = [(run.status, run.output) for run in await stores.state.list_runs("s")]
    expect_same(runs, [("completed", "One."), ("interrupted", None)], "the runs")
    expect_same([result.status, result.output], ["interrupted", None], "what the submitter gets")


@check("X9", "a message for a queued run is enqueued immediately; resume() with a message is rejected")
async def message_for_a_queued_run(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["One.", "Two."]), lease_seconds=600, agents=[agent]) as executor:
        await executor.submit(agent, "Go", session_id="s")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await executor.execute(agent, "And", session_id="s", if_running="enqueue")
        with raises(AlreadyRunning, "resume() of a queued run with a message"):
            await executor.resume(agent, "s", message="More")
        for handle in await executor.recover():
            await handle.result()
    users = [message["content"] for message in await transcript(stores, "s") if message["role"] == "user"]
    expect_same(users, ["Go", "And"], "the user's messages")


@check("X9", "the same checkpoint, restored and forked, continues its turn")
async def restored_and_forked(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent(work)
    async with executing(stores, ScriptedLLM([[Call("work")], "Done.", "More.", "More."])) as executor:
        await executor.run(agent, "Go", session_id="s")
        step = [each for each in (await stores.state.list_checkpoints("s")).items if each.kind == "step"][-1]
        await stores.state.fork_session("s", "f", checkpoint_id=step.checkpoint_id)
        await stores.state.restore_checkpoint("s", step.checkpoint_id)
        for session_id in ("s", "f"):
            await executor.run(agent, "Go on", session_id=session_id)
            begins = of_type(await chunks_of(stores, session_id), "run_started", "run_resumed")
            expect_same([chunk["type"] for chunk in begins][-1], "run_resumed", f"how {session_id} continues")


@check("X9", "a handle on a run that was handed over waits for the worker that continues it")
async def handed_over(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    agent, llm = simple_agent(work), Gated([[Call("work")], "Done."])
    async with (
        executing(stores, llm) as first,
        executing(other, ScriptedLLM([[Call("work")], "Done."]), agents=[agent]) as second,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        handle = await first.execute(agent, "Go", session_id="s")
        await llm.reached.wait()
        leaving = asyncio.create_task(first.hand_over())
        await asyncio.sleep(0)
        llm.go.set()
        await leaving
        elsewhere = await second.get_handle(agent, "s")
        assert elsewhere is not None
        waiting = [asyncio.create_task(each.result()) for each in (handle, elsewhere)]
        await second.recover()
        expect_same([(await each).status for each in waiting], ["completed"] * 2, "what the handles return")


@check("X9", "a request with an idempotency key continues its run, wherever its process died", kind="faults")
async def key_of_a_dead_run(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent = simple_agent()
    await _crashed(stores, clock, "s", idempotency_key="k")
    async with executing(stores, ScriptedLLM(["One."]), clock=clock) as executor, asyncio.timeout(PATIENCE_SECONDS):
        result = await executor.run(agent, "Go", session_id="s", idempotency_key="k")
        again = await executor.run(agent, "Go", session_id="s", idempotency_key="k")
        await executor.run(agent, "Next", session_id="s", idempotency_key="other")
        later = await executor.run(agent, "Go", session_id="s", idempotency_key="k")
    expect_same([result.output, again.output, later.output], ["One."] * 3, "the outputs of one request")


@check("X9", "a keyed request whose run is believed to be alive waits for the lease, then continues it", kind="faults")
async def key_of_a_run_that_is_about_to_be_dead(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent, llm = simple_agent(), Gated(["Never said."])
    dead = make_executor(stores, llm, clock=clock)
    await dead.execute(agent, "Go", session_id="s", idempotency_key="k")
    await llm.reached.wait()
    async with executing(stores, ScriptedLLM(["One."]), clock=clock) as executor, asyncio.timeout(PATIENCE_SECONDS):
        running = asyncio.create_task(executor.run(agent, "Go", session_id="s", idempotency_key="k"))
        await asyncio.wait({running}, timeout=0.3)
        expect(not running.done(), "the request did not wait for a live run")
        await dead.close()
        clock.pass_seconds(60)
        expect_same((await running).output, "One.", "the output")


@check("X9", "a message for a session that ended and was not closed is not dropped", kind="faults")
async def message_after_an_end_that_was_not_closed(harness: Harness) -> None:
    stores, clock, life = await harness.open_stores(), Clockwork(), Life(commits=1, apart=True)
    agent = simple_agent()
    dying = make_executor(life.wrap(stores), ScriptedLLM(["One.", "Two."]), clock=clock)
    with raises(HelixError, "a process that dies after its last commit"):
        await dying.run(agent, "Go", session_id="s")
    await life.bury()
    await dying.close()
    clock.pass_seconds(60)
    async with executing(stores, ScriptedLLM(["One.", "Two."]), clock=clock) as executor:
        with raises(NotResumable, "resume() with a message"):
            await executor.resume(agent, "s", message="More")
        await executor.run(agent, "More", session_id="s")
    runs = await stores.state.list_runs("s")
    expect_same([(run.status, run.error) for run in runs], [("completed", None)] * 2, "the runs")


@check("X9", "an acknowledged abort or interrupt takes effect even if the run's process died", kind="faults")
async def stop_of_a_dead_run(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent = simple_agent()
    for how, status in (("abort", "failed"), ("interrupt", "interrupted")):
        llm = Gated(["Never said."])
        dead = make_executor(stores, llm, clock=clock, poll_seconds=600)
        await dead.execute(agent, "Go", session_id=how)
        await llm.reached.wait()
        async with executing(stores, ScriptedLLM(["One."]), clock=clock, agents=[agent]) as executor:
            await getattr(executor, how)(how, "stop it")
            await dead.close()
            clock.pass_seconds(60)
            await executor.recover()
        session = await stores.state.load_state(how)
        expect_same(session and session.status, status, f"the session after {how}")


@check("X9", "a run that kills every process that works on it is eventually marked as failed", kind="faults")
async def poisoned(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent = simple_agent()
    await _crashed(stores, clock, "s")
    for _ in range(100):  # a death counts only if a chunk of its run was stored in time
        llm = Gated(["Never said."])
        dying = make_executor(stores, llm, clock=clock, agents=[agent])
        if not await dying.recover():
            await dying.close()
            break
        await llm.reached.wait()
        await dying.close()
        clock.pass_seconds(60)
    session = await stores.state.load_state("s")
    expect_same(session and session.failure_reason, "poisoned", "why it failed")


@check("X9", "an engine's request that is sent again finds its run, even if the process that worked on it died")
async def key_of_a_dead_run_of_an_engine(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent, llm = simple_agent(), Gated(["Never said."])
    dead = make_executor(stores, llm, clock=clock)
    stepper = Stepper(dead, engine="clockwork")
    ticket = await stepper.begin(agent, "Go", session_id="s", idempotency_key="k")
    stepping = asyncio.ensure_future(stepper.step(agent, ticket))
    await llm.reached.wait()
    stepping.cancel()
    await asyncio.gather(stepping, return_exceptions=True)
    await dead.close()
    clock.pass_seconds(60)
    async with executing(stores, ScriptedLLM(["Done."]), clock=clock) as executor:
        other = Stepper(executor, engine="clockwork")
        again = await other.begin(agent, "Go", session_id="s", idempotency_key="k")
        expect_same(again.run_id, ticket.run_id, "the run of the key")
        done = await other.step(agent, again)
    expect_same((done.status, done.output), ("completed", "Done."), "the run after its next step")


@check("X9", "the fields of a run record what the executor knows, and its metadata belongs to the caller")
async def fields_of_runs(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    agent, limits = simple_agent(), UsageLimits(steps=5)
    await _crashed(stores, clock, "s", limits=limits, idempotency_key="k")
    async with executing(stores, ScriptedLLM(["One.", "Two."]), clock=clock, agents=[agent]) as executor:
        for handle in await executor.recover():
            await handle.result()
        await executor.submit(agent, "More", session_id="s")
        for handle in await executor.recover():
            await handle.result()
    runs = await stores.state.list_runs("s")
    expect_same(
        [(run.turn, run.attempt, run.first_step) for run in runs], [(1, 1, 0), (1, 2, 0), (2, 1, 1)], "the runs"
    )
    expect_same([run.resumes for run in runs], [None, runs[0].run_id, None], "what they resume")
    expect_same([run.idempotency_key for run in runs], ["k", "k", None], "their keys")
    expect_same([run.limits is not None for run in runs], [True, True, False], "their limits")
    expect_same([run.queued for run in runs], [False, False, True], "which were submitted")
    expect_same([run.metadata for run in runs], [{}, {}, {}], "the metadata")
    resumed = [chunk["turn"] for chunk in of_type(await chunks_of(stores, "s"), "run_started", "run_resumed")]
    expect_same(resumed, [2], "the turns on the stream")


@check("X9", "for every operation, another user's session does not exist")
async def session_of_another_user(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["One.", "Two."])) as executor:
        await executor.run(agent, "Go", session_id="s", user_id="alice")
        asked: list[Any] = [
            executor.execute(agent, "Hi", session_id="s", user_id="bob"),
            executor.submit(agent, "Hi", session_id="s", user_id="bob"),
            executor.resume(agent, "s", user_id="bob"),
            executor.retry("s", user_id="bob"),
            executor.interrupt("s", user_id="bob"),
            executor.abort("s", user_id="bob"),
            executor.submit_tool_result("s", "c", result=1, user_id="bob"),
            executor.restore("s", "c", user_id="bob"),
            executor.can_resume("s", user_id="bob"),
        ]
        for each in asked:
            with raises(SessionNotFound, "a call on another user's session"):
                await each
        expect(not await executor.delete_session("s", user_id="bob"), "bob has deleted alice's session")
        expect_same((await executor.run(agent, "Hi", session_id="s", user_id="alice")).output, "Two.", "the next turn")


@check("X9", "a session that only an idempotency key identifies has an id that no client can compute")
async def session_of_a_key(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["One."])) as here, executing(other, ScriptedLLM(["One."])) as there:
        first = await asyncio.gather(*(each.execute(agent, "Go", idempotency_key="k") for each in (here, there, here)))
        expect_same(len({handle.session_id for handle in first}), 1, "the sessions of one key")
        await first[0].result()
        mine = await here.execute(agent, "Go", idempotency_key="k", user_id="alice")
        expect(mine.session_id != first[0].session_id, "two users share the session of a key")
        await mine.result()


class _SlowRecords(DelegatingStateStore):
    """A state store that closes run records late: by then, readers have the end of the stream."""

    def carries(self, *args: Any) -> bool:
        return False

    async def update_run_status(self, *args: Any, **options: Any) -> RunRecord:
        for _ in range(100):
            await asyncio.sleep(0)
        return await super().update_run_status(*args, **options)


@check("X9", "a stream ends only when the run's record is closed, even if the run failed and the record is late")
async def stream_ends_after_a_late_record(harness: Harness) -> None:
    stores, agent = await harness.open_stores(), simple_agent()
    async with AgentExecutor(_SlowRecords(stores.state), stores.streams, ScriptedLLM([ModelError("no")])) as executor:
        async for _ in executor.stream(agent, "Go", session_id="s"):
            pass
        run = await stores.state.get_current_run("s")
        expect_same(run and run.status, "failed", "the record after the stream")


@check("X9", "a stream ends only when the run's record is closed")
async def stream_ends_after_the_record(harness: Harness) -> None:
    stores, other = await harness.open_stores(), await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["One."] * 9)) as executor, executing(other, ScriptedLLM([])) as elsewhere:
        for turn in range(4):
            async for _ in executor.stream(agent, "Go", session_id="s"):
                pass
            run = await stores.state.get_current_run("s")
            expect_same(run and run.status, "completed", f"the record after the stream of turn {turn}")
            handle = await executor.execute(agent, "Go", session_id="s")
            watched = await elsewhere.get_handle(agent, "s")
            assert watched is not None
            async for _ in watched.stream():
                pass
            run = await stores.state.get_current_run("s")
            expect_same(run and run.status, "completed", "the record, read through another executor")
            await handle.result()
