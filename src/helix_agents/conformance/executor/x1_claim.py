"""X1: who may start a turn and when. No caller waits for a free lease, and no model is called without a message."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...errors import AlreadyRunning, InvalidArgument, NotResumable, SessionExists
from ...executor import RunHandle
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same, raises
from ..harness import Harness
from .harness import Clockwork, check, executing, make_executor, simple_agent, transcript
from .mortal import Died, Life

USER = {"role": "user", "content": "Go"}
DONE = {"role": "assistant", "content": "Done."}


class _Listening(ScriptedLLM):
    """A model that records the messages of each request."""

    def __init__(self, replies: Any) -> None:
        super().__init__(replies)
        self.asked: list[int] = []

    def stream(self, request: ModelRequest) -> Any:
        self.asked.append(len(request.messages))
        return super().stream(request)


@check(
    "X1", "if the process dies before the input is stored, resume is rejected and execute starts over", kind="faults"
)
async def dead_before_the_input(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent, llm, clock = simple_agent(), _Listening(["Done."]), Clockwork()
    for last, apart in ((1, False), (2, False), (1, True), (2, True), (3, True), (4, True)):
        session_id = f"dead at {last}, {apart=}"
        dying = make_executor(Life(last, apart=apart).wrap(stores), llm, clock=clock)
        with raises(Died, "the execution that dies"):
            await dying.execute(agent, "Go", session_id=session_id)
        clock.pass_seconds(3600)
        executor = make_executor(stores, llm, clock=clock)
        if await stores.state.session_exists(session_id):
            if await stores.state.get_message_count(session_id):
                continue  # the input is stored: another check covers that
            expect(not (await executor.can_resume(session_id)).can_resume, f"{session_id}: can be resumed")
            with raises(NotResumable, f"{session_id}: resuming without the input"):
                await executor.resume(agent, session_id)
        result = await (await executor.execute(agent, "Go", session_id=session_id)).result()
        expect_same(result.status, "completed", f"{session_id}: the status")
        expect_same(await transcript(stores, session_id), [USER, DONE], f"{session_id}: the conversation")
    expect(0 not in llm.asked, "the model was called without any message")


@check("X1", "a session without a message cannot be resumed, whatever its status; with a message it can")
async def nothing_to_go_on_from(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent, llm = simple_agent(), _Listening(["Done."])
    executor = make_executor(stores, llm)
    for status in ("active", "interrupted", "paused"):
        await stores.state.create_session(status, agent_type="main", custom_state={})
        await stores.state.update_status(status, status)
        expect(not (await executor.can_resume(status)).can_resume, f"{status}: can be resumed")
        with raises(NotResumable, f"{status}: resuming without a message"):
            await executor.resume(agent, status)
        await (await executor.resume(agent, status, message="Go")).result()
        expect_same(await transcript(stores, status), [USER, DONE], f"{status}: the conversation")
    expect(0 not in llm.asked, "the model was called without any message")


@check("X1", "after a restore, a fork or a manual save no lease is held: execute and resume work immediately")
async def nobody_holds_a_lease(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent = simple_agent(work)
    executor = make_executor(stores, ScriptedLLM([[Call("work")], "Done.", "Again."]), lease_seconds=60)
    for session_id in ("restored", "resumed"):
        await (await executor.execute(agent, "Go", session_id=session_id)).result()
    checkpoints = (await stores.state.list_checkpoints("restored")).items
    for number, checkpoint in enumerate(checkpoints):
        await stores.state.fork_session("restored", f"fork {number}", checkpoint_id=checkpoint.checkpoint_id)
        handle = await executor.execute(agent, "Go on", session_id=f"fork {number}")
        expect_same((await handle.result()).status, "completed", f"a fork at {checkpoint.step_id}")
    for session_id in ("restored", "resumed"):
        within = (await stores.state.list_checkpoints(session_id)).items[1]
        await stores.state.restore_checkpoint(session_id, within.checkpoint_id)
        if session_id == "resumed":
            handle = await executor.resume(agent, session_id)
        else:
            handle = await executor.execute(agent, "Go on", session_id=session_id)
        expect_same((await handle.result()).status, "completed", f"{session_id} within a turn")
    made = await stores.state.create_session("by hand", agent_type="main", custom_state={})
    await stores.state.save_state("by hand", msgspec.structs.replace(made, custom_state={"a": 1}))
    result = await (await executor.execute(agent, "Go", session_id="by hand")).result()
    expect_same(result.status, "completed", "a session created and saved by hand")


@check("X1", "a session that must be new is started by exactly one of many callers; an existing one is left alone")
async def new_sessions_only(harness: Harness) -> None:
    stores = await harness.open_stores()
    agent = simple_agent()
    async with executing(stores, ScriptedLLM(["Done."] * 9)) as executor:
        asked = [executor.execute(agent, f"Mine, {n}", session_id="s", if_exists="reject") for n in range(8)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        (handle,) = [each for each in told if isinstance(each, RunHandle)]
        await handle.result()
        refused = {type(each) for each in told} - {RunHandle}
        expect(refused <= {SessionExists, AlreadyRunning}, f"the others got {told}")
        before = await stores.state.load_state("s")
        with raises(SessionExists, "a session that exists"):
            await executor.execute(agent, "Mine", session_id="s", if_exists="reject")
        expect_same(await stores.state.load_state("s"), before, "the session that existed")
        expect_same(len(await transcript(stores, "s")), 2, "the messages: one from the user and one reply")
        again = [
            await executor.execute(agent, "Once", session_id="k", if_exists="reject", idempotency_key="k")
            for _ in range(2)
        ]
        expect_same(again[1].run_id, again[0].run_id, "the run of the same request, sent again")
        await again[0].result()
        with raises(InvalidArgument, "if_exists with if_running"):
            await executor.execute(agent, "Go", session_id="n", if_exists="reject", if_running="enqueue")
        with raises(InvalidArgument, "an invalid if_exists"):
            await executor.execute(agent, "Go", session_id="n", if_exists="maybe")  # type: ignore[arg-type]


@check("X1", "a session restored to a step of an earlier turn finishes that turn")
async def restored_to_an_earlier_turn(harness: Harness) -> None:
    stores = await harness.open_stores()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent = simple_agent(work)
    script = ScriptedLLM([[Call("work")], [Call("work")], "One.", "Two."])
    async with executing(stores, script) as executor:
        for text in ("first", "second"):
            await (await executor.execute(agent, text, session_id="s")).result()
        steps = [each for each in (await stores.state.list_checkpoints("s")).items if each.kind == "step"]
        await executor.restore("s", steps[-1].checkpoint_id)
    async with executing(stores, ScriptedLLM(lambda request: "Shorter.")) as executor:
        result = await (await executor.resume(agent, "s")).result()
    run = await stores.state.get_current_run("s")
    expect_same([result.status, result.output, run and run.status], ["completed", "Shorter.", "completed"], "the end")
    expect(run is not None and run.step_count >= 1, f"the run counts {run and run.step_count} steps")
