"""X9, S17: regenerate, edit and switch by processes that freeze, die, lose replies or lose a race."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from ...errors import InvalidArgument, StoreUnavailable, VersionConflict
from ...executor import AgentExecutor, RunHandle
from ...llm.contract import ModelRequest
from ...llm.scripted import Call, Line, ScriptedLLM
from ...messages import Message
from ...tools import ToolContext, tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from . import x9_frozen as base
from .frozen import Freezer, places
from .harness import Clockwork, Parts, check, make_executor, simple_agent, transcript
from .mortal import Died, Life
from .view import View
from .x9_frozen import LEASE_SECONDS, PATIENCE_SECONDS, Scene, frozen_everywhere
from .x9_standing import ask

Started = RunHandle[Any] | None
"""The run that a verb has started, if it starts one."""

KEY = "the request that may be sent again"
SECOND = "the second message"

LEFT: dict[str, str] = {}
"""For each session, the branch that was left first, to switch to."""


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Write something down."""
    ctx.update_state(lambda draft: draft["notes"].append(text))
    return "noted"


AGENT = simple_agent(note, ask, state={"notes": []})


def _voice(name: str) -> Callable[[ModelRequest], Line]:
    """Return a model that signs its replies. The user's first word may name a tool."""

    def reply(request: ModelRequest) -> Line:
        last = request.messages[-1]
        word, _, rest = str(last["content"]).partition(" ")
        if last["role"] == "user" and word in ("note", "ask", "both"):
            noted = Call("note", {"text": f"{rest} of {name}"})
            return [noted] if word == "note" else [Call("ask"), *([noted] if word == "both" else [])]
        return f"This is {name}."

    return reply


def executor_on(stores: StoreSet, clock: Clockwork, name: str = "second") -> AgentExecutor:
    """Return an executor whose model signs with a name."""
    return make_executor(stores, ScriptedLLM(_voice(name)), clock=clock, lease_seconds=LEASE_SECONDS, agents=[AGENT])


# -- prepared sessions, and the operations on them


def _second(text: str) -> Message:
    return {"role": "user", "content": text, "id": SECOND}


async def completed(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    """Create a conversation of two turns."""
    async with executor_on(stores, clock, "first") as executor:
        await executor.run(AGENT, "note one", session_id=session_id)
        await executor.run(AGENT, _second("note two"), session_id=session_id)


async def suspended(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    """Create a conversation whose second turn waits for a client."""
    async with executor_on(stores, clock, "first") as executor:
        await executor.run(AGENT, "note one", session_id=session_id)
        await executor.run(AGENT, _second("ask"), session_id=session_id)


async def branched(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    """Create a conversation with two branches."""
    await completed(stores, clock, session_id)
    async with executor_on(stores, clock) as executor:
        await _left_again(executor, session_id)
    LEFT[session_id] = next(it.branch_id for it in await stores.state.list_branches(session_id) if not it.is_active)


async def regenerate(executor: AgentExecutor, session_id: str, key: str | None = KEY) -> Started:
    """Start the last turn again."""
    return await executor.regenerate(session_id, idempotency_key=key)


async def edit(executor: AgentExecutor, session_id: str, key: str | None = KEY) -> Started:
    """Replace the second message of the user."""
    with suppress(InvalidArgument):  # a recreated conversation has no such message
        return await executor.edit(session_id, SECOND, "note three", idempotency_key=key)
    return None


async def switch(executor: AgentExecutor, session_id: str, key: str | None = None) -> Started:
    """Switch to the branch that was left first."""
    with suppress(InvalidArgument):
        await executor.switch_branch(session_id, LEFT[session_id])
    return None


class Verb(NamedTuple):
    """One of the three, what it needs, and the write of the store that carries it out.

    It returns before its run calls the model: X2 covers how runs die and freeze.
    """

    act: Callable[..., Coroutine[None, None, Started]]
    prepare: Callable[[StoreSet, Clockwork, str], Awaitable[None]]
    write: str
    makes: int
    """How many branches it adds if the last turn was already regenerated."""

    async def finish(self, executor: AgentExecutor, session_id: str, key: str | None = KEY) -> None:
        """Perform the operation, and wait for its run."""
        if (handle := await self.act(executor, session_id, key)) is not None:
            await handle.result()


VERBS = (
    Verb(regenerate, completed, "branch_session", 1),
    Verb(edit, suspended, "branch_session", 2),
    Verb(switch, branched, "switch_branch", 0),
)


@check("X9", "a regenerate, edit or switch that freezes anywhere does not change a later turn", kind="faults")
async def frozen_branching(harness: Harness) -> None:
    for verb in VERBS:
        await frozen_everywhere(harness, Scene(verb.prepare, verb.act, base.next_turns))


@check(
    "X9",
    "a regenerate, edit or switch that freezes anywhere does not change a branch created since then",
    kind="faults",
)
async def frozen_before_a_branch(harness: Harness) -> None:
    for verb in VERBS:
        await frozen_everywhere(harness, Scene(branched, verb.act, _left_again))


async def _left_again(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.regenerate(session_id, if_running="interrupt")).result()


@check("X9", "a regenerate, edit or switch leaves deleted and recreated sessions alone", kind="faults")
async def frozen_branching_of_what_is_gone(harness: Harness) -> None:
    for verb in VERBS:
        for meanwhile in (base.deleted, base.created_again):
            await frozen_everywhere(harness, Scene(verb.prepare, verb.act, meanwhile))


# -- death and lost replies


async def _conversation(stores: StoreSet, session_id: str) -> dict[str, Any]:
    """Return the content of a branch, without names that differ from case to case."""
    session = await stores.state.load_state(session_id)
    assert session is not None
    return {
        "messages": await transcript(stores, session_id),
        "state": session.custom_state,
        "status": [session.status, session.output, session.error, len(session.pending_client_tool_calls)],
        "steps": [it.message_count for it in (await stores.state.list_checkpoints(session_id)).items],
    }


async def _all_branches(stores: StoreSet, clock: Clockwork, session_id: str) -> list[Any]:
    """Return the content of every branch after switching to it."""
    found = []
    async with executor_on(stores, clock) as executor:
        for branch in await executor.list_branches(session_id):
            await executor.switch_branch(session_id, branch.branch_id)
            found.append([branch.is_active, branch.message_count, await _conversation(stores, session_id)])
    return found


async def _outcome(stores: StoreSet, clock: Clockwork, session_id: str) -> dict[str, Any]:
    """Return everything at the end: what is stored, what readers have, and every branch."""
    view = View()
    for stored in await stores.streams.get_all_chunks(session_id):
        view.take(stored.chunk)
    info = await stores.streams.get_stream_info(session_id)
    announced = [chunk["message_count"] for chunk in view.chunks if chunk["type"] == "branch_switched"]
    return {
        "now": await _conversation(stores, session_id),
        "open runs": [run.run_id for run in await stores.state.list_runs(session_id) if run.status == "running"],
        "stream": [info and info.status, view.summary(), announced],
        "branches": await _all_branches(stores, clock, session_id),
    }


@check(
    "S17",
    "a regenerate, edit or switch killed at any call happens fully or not at all, and succeeds when retried",
    kind="faults",
)
async def killed_while_branching(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for verb in VERBS:
        whole, name = Life(), verb.act.__name__
        await verb.prepare(stores, clock, name)
        before = await _conversation(stores, name)
        async with executor_on(whole.wrap(stores), clock) as executor:
            handle = await verb.act(executor, name)
            calls = whole.calls
            if handle is not None:
                await handle.result()
        expected = await _outcome(stores, clock, name)
        for number, reply_lost in places(calls, seed=harness.options.seed, most=harness.options.steps // 5):
            session_id = f"{name}-{number}-{reply_lost}"
            await verb.prepare(stores, clock, session_id)
            await _killed(stores, clock, verb, session_id, Life(number, reply_lost=reply_lost))
            if len(await stores.state.list_branches(session_id)) < 2:
                expect_same(await _conversation(stores, session_id), before, f"{session_id}: nothing has happened")
            async with executor_on(stores, clock) as executor:
                await verb.finish(executor, session_id)
            expect_same(await _outcome(stores, clock, session_id), expected, session_id)


async def _killed(stores: StoreSet, clock: Clockwork, verb: Verb, session_id: str, life: Life) -> None:
    executor = executor_on(life.wrap(stores), clock)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await verb.act(executor, session_id)
    except Died:
        await life.bury()
    await executor.close()
    clock.pass_seconds(LEASE_SECONDS + 1)


class LostReply(Freezer):
    """Loses the reply to one call of the state store."""

    def wrap(self, stores: StoreSet) -> Parts:
        return Parts(self._wrapped(stores.state), stores.streams, stores.usage)

    async def call(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls += 1
        number = self.calls
        answer = await method(*args, **kwargs)
        if number == self._at:
            self.place = name
            raise StoreUnavailable(f"The kit lost the reply of {name}.")
        return answer


@check("S17", "a regenerate, edit or switch that loses the reply to any call happens once", kind="faults")
async def lost_replies_while_branching(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for verb in VERBS:
        for key in (KEY, None):  # a key finds the run that it started, even if the commit was not recognized
            await _lost_anywhere(stores, clock, verb, key)


async def _lost_anywhere(stores: StoreSet, clock: Clockwork, verb: Verb, key: str | None) -> None:
    expected: dict[str, Any] = {}
    number, calls = 0, 1
    while number <= calls:
        session_id, lost = f"{verb.act.__name__}-{key}-{number}", LostReply(number)
        await verb.prepare(stores, clock, session_id)
        async with executor_on(lost.wrap(stores), clock) as executor:
            handle = await verb.act(executor, session_id, key)
            calls = calls if number else lost.calls
            if handle is not None:
                await handle.result()
        outcome = await _outcome(stores, clock, session_id)
        expected = expected if number else outcome
        expect_same(outcome, expected, f"{verb.act.__name__} without the reply to call {number}, {lost.place}")
        number += 1


# -- two concurrently


@check(
    "S17",
    "of two concurrent regenerates, edits or switches, one succeeds and the other gets VersionConflict",
    kind="tasks",
)
async def two_editors(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for one in VERBS:
        for other in VERBS:
            session_id = f"{one.act.__name__}-{other.act.__name__}"
            await branched(stores, clock, session_id)
            before = len(await stores.state.list_branches(session_id))
            outcomes = await _at_once(stores, clock, session_id, one, other)
            losses = [outcome for outcome in outcomes if outcome is not None]
            got = [type(outcome).__name__ for outcome in losses]
            expect_same(got, [VersionConflict.__name__], f"how the loser of {session_id} ends: {losses}")
            winner = (one, other)[outcomes.index(None)]
            made = len(await stores.state.list_branches(session_id)) - before
            expect_same(made, winner.makes, f"new branches of {session_id}")
            expect(not await _is_running(stores, session_id), f"a run of {session_id} was left open")


async def _at_once(stores: StoreSet, clock: Clockwork, session_id: str, *verbs: Verb) -> list[BaseException | None]:
    """Let both read the session, and only then write."""
    gates = [Freezer(on=verb.write) for verb in verbs]
    executors = [executor_on(gate.wrap(stores), clock) for gate in gates]
    async with asyncio.timeout(PATIENCE_SECONDS):
        acting = [
            asyncio.create_task(v.finish(each, session_id, None)) for v, each in zip(verbs, executors, strict=True)
        ]
        for gate in gates:
            await gate.frozen.wait()
        for gate in gates:
            gate.wake()
        outcomes = await asyncio.gather(*acting, return_exceptions=True)
    for executor in executors:
        await executor.close()
    return list(outcomes)


async def _is_running(stores: StoreSet, session_id: str) -> bool:
    return any(run.status == "running" for run in await stores.state.list_runs(session_id))
