"""X9: freezes in the operations that `x9_frozen.py` leaves out: rejected input, message, response, fork, submit."""

from __future__ import annotations

from contextlib import suppress

from ...errors import InvalidArgument, SessionExists
from ...executor import AgentExecutor
from ...llm.scripted import Call, Reply, ScriptedLLM
from ..expect import expect_same
from ..harness import Harness, StoreSet
from . import x9_frozen as base
from .frozen import places
from .harness import Clockwork, check, simple_agent, transcript
from .mortal import Died, Life
from .view import View
from .x9_frozen import Scene, frozen_everywhere
from .x9_standing import ask, work

WARY = simple_agent(ask, work)
"""The same agent, which rejects every input."""


@WARY.check_input
def _reject(messages: object) -> str:
    return "Not this."


async def _queued(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    async with base.executor_on(stores, clock) as executor:
        await executor.submit(base.AGENT, "One", session_id=session_id)


async def _say_what_is_rejected(executor: AgentExecutor, session_id: str) -> None:
    await executor.run(WARY, "Bad", session_id=session_id)


async def _enqueue(executor: AgentExecutor, session_id: str) -> None:
    await executor.execute(base.AGENT, "Mine", session_id=session_id, if_running="enqueue")


async def _respond(executor: AgentExecutor, session_id: str) -> None:
    with suppress(InvalidArgument):  # it no longer asks anything
        await executor.submit_tool_result(session_id, "call_1_1", result="mine")


async def _asked_again(executor: AgentExecutor, session_id: str) -> None:
    """Recreate the session, with a question that has the id of the old one."""
    await executor.delete_session(session_id)
    asking = simple_agent(ask, work, llm=ScriptedLLM([[Call("ask")]]))
    await executor.run(asking, "Anew", session_id=session_id)


async def _fork(executor: AgentExecutor, session_id: str) -> None:
    with suppress(SessionExists):
        await executor.fork_session(session_id, f"{session_id}-fork")


@check("X9", "a rejected input that freezes anywhere does not change a later turn", kind="faults")
async def frozen_rejection(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(base.completed, _say_what_is_rejected, base.next_turns))
    await frozen_everywhere(harness, Scene(base.completed, _say_what_is_rejected, base.created_again))


@check("X9", "a message or a response that freezes anywhere never reaches a session that was recreated", kind="faults")
async def frozen_messages(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(_queued, _enqueue, base.created_again))
    await frozen_everywhere(harness, Scene(base.suspended, _respond, base.created_again))
    await frozen_everywhere(harness, Scene(base.suspended, _respond, _asked_again))


@check("X9", "a fork that freezes anywhere changes neither its source nor a session that took its id", kind="faults")
async def frozen_fork(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(base.completed, _fork, base.next_turns))
    await frozen_everywhere(harness, Scene(base.completed, _fork, base.created_again))


@check("X9", "a worker that continues what was submitted to a dead run shows nothing twice", kind="faults")
async def submitted_to_a_dead_run(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    whole, script = Life(), [Reply("Working.", [Call("work")]), *["Done."] * 4]
    async with base.executor_on(whole.wrap(stores), clock, *script) as executor:
        await executor.run(base.AGENT, "One", session_id="undisturbed")
    for number, reply_lost in places(whole.calls, seed=harness.options.seed, most=harness.options.steps // 5):
        session_id, life = f"s{number}-{reply_lost}", Life(number, reply_lost=reply_lost)
        dying = base.executor_on(life.wrap(stores), clock, *script)
        with suppress(Died):
            await dying.run(base.AGENT, "One", session_id=session_id)
        await life.bury()
        await dying.close()
        clock.pass_seconds(base.LEASE_SECONDS + 1)
        async with base.executor_on(stores, clock, *script) as executor:
            await executor.submit(base.AGENT, "Two", session_id=session_id)
            await base.recover(executor, session_id)
        session, view = await stores.state.load_state(session_id), View()
        for stored in await stores.streams.get_all_chunks(session_id):
            view.take(stored.chunk)
        said = [each["content"] for each in await transcript(stores, session_id) if each["role"] == "user"]
        expect_same(said[-1], "Two", f"{session_id}: the last message")
        expect_same(session and session.status, "completed", f"{session_id}: the status")
        shown = view.summary()
        expect_same(shown.get("output"), "Done.", f"{session_id}: the output that readers have")
        texts = [text for name, text in shown.items() if "text_delta" in name and text not in ("Working.", "Done.")]
        expect_same(texts, [], f"{session_id}: texts that the model never sent")
