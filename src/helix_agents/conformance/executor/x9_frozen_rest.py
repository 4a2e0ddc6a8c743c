"""X9: the freezer over what `x9_frozen.py` leaves: a rejected input, a message, a response, a fork."""

from __future__ import annotations

from contextlib import suppress

from ...errors import InvalidArgument, SessionExists
from ...executor import AgentExecutor
from ...llm.scripted import Call, ScriptedLLM
from ..harness import Harness, StoreSet
from . import x9_frozen as base
from .harness import Clockwork, check, simple_agent
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
    """Create the session again, with a question that has the id of the old one."""
    await executor.delete_session(session_id)
    asking = simple_agent(ask, work, llm=ScriptedLLM([[Call("ask")]]))
    await executor.run(asking, "Anew", session_id=session_id)


async def _fork(executor: AgentExecutor, session_id: str) -> None:
    with suppress(SessionExists):
        await executor.fork_session(session_id, f"{session_id}-fork")


@check("X9", "a rejected input that freezes anywhere changes nothing of a later turn", kind="faults")
async def frozen_rejection(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(base.completed, _say_what_is_rejected, base.next_turns))
    await frozen_everywhere(harness, Scene(base.completed, _say_what_is_rejected, base.created_again))


@check(
    "X9", "a message or a response that freezes anywhere never reaches a session that was created again", kind="faults"
)
async def frozen_messages(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(_queued, _enqueue, base.created_again))
    await frozen_everywhere(harness, Scene(base.suspended, _respond, base.created_again))
    await frozen_everywhere(harness, Scene(base.suspended, _respond, _asked_again))


@check(
    "X9", "a fork that freezes anywhere changes nothing of its source, nor of a session that took its id", kind="faults"
)
async def frozen_fork(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(base.completed, _fork, base.next_turns))
    await frozen_everywhere(harness, Scene(base.completed, _fork, base.created_again))
