"""X9: the stream of a session that a checkpoint or another branch has replaced, also if the process died in between.

The session changes first, then its stream. Until then the stream's fence is behind the session's owner epoch, and the
next process that changes the session resets the stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from ...executor import AgentExecutor
from ..expect import expect_same
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, chunks_of, transcript
from .mortal import Died, Life
from .page import expect_page, expect_sound
from .x9_branches import AGENT, executor_on, suspended
from .x9_frozen import LEASE_SECONDS

Act = Callable[[AgentExecutor, str], Awaitable[Any]]


async def _waiting(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    """Create a conversation whose second turn waits for a client, beside a call that has finished."""
    async with executor_on(stores, clock, "first") as executor:
        for text in ("note one", "both of them"):
            await executor.run(AGENT, text, session_id=session_id)


async def _restore(executor: AgentExecutor, session_id: str, *, kind: str = "aside") -> None:
    """Restore the latest checkpoint of a kind: `aside` waits for a client, `step` is the end of the first turn."""
    checkpoints = (await executor.services.store.list_checkpoints(session_id)).items
    chosen = next(each for each in checkpoints if each.kind == kind)
    await executor.restore(session_id, chosen.checkpoint_id)


async def _restore_first_turn(executor: AgentExecutor, session_id: str) -> None:
    await _restore(executor, session_id, kind="step")


async def _switch(executor: AgentExecutor, session_id: str) -> None:
    branches = await executor.list_branches(session_id)
    await executor.switch_branch(session_id, next(each.branch_id for each in branches if not each.is_active))


async def _leave(executor: AgentExecutor, session_id: str) -> None:
    """Replace the turn that waits with one that completes."""
    await executor.run(AGENT, "note what follows", session_id=session_id)
    messages = (await executor.services.store.get_messages(session_id, limit=None)).items
    asked = [message["id"] for message in messages if message["role"] == "user"]
    await (await executor.edit(session_id, asked[1], "note two")).result()


async def _wait_elsewhere(executor: AgentExecutor, session_id: str) -> None:
    """Replace the turn that waits with another one that waits."""
    messages = (await executor.services.store.get_messages(session_id, limit=None)).items
    asked = [message["id"] for message in messages if message["role"] == "user"]
    await (await executor.edit(session_id, asked[1], "both again")).result()


async def _nothing(executor: AgentExecutor, session_id: str) -> None:
    """Leave the session as it is: its turn waits."""


async def _regenerate(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.regenerate(session_id)).result()


async def _abort(executor: AgentExecutor, session_id: str) -> None:
    await executor.abort(session_id, "never mind")


async def _interrupt(executor: AgentExecutor, session_id: str) -> None:
    await executor.interrupt(session_id)


async def _say(executor: AgentExecutor, session_id: str) -> None:
    await executor.run(AGENT, "note later", session_id=session_id)


async def _respond(executor: AgentExecutor, session_id: str) -> None:
    session = await executor.services.store.load_state(session_id)
    for call_id in session.pending_client_tool_calls if session else ():
        await executor.submit_tool_result(session_id, call_id, result="blue")


async def _resume(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.resume(AGENT, session_id)).result()


async def _answer(executor: AgentExecutor, session_id: str) -> None:
    """Answer what the session waits for, and continue."""
    await _respond(executor, session_id)
    await _resume(executor, session_id)


async def _interrupt_and_answer(executor: AgentExecutor, session_id: str) -> None:
    await _interrupt(executor, session_id)
    await _answer(executor, session_id)


class Change(NamedTuple):
    """An operation that changes a session and then its stream; what happens before; its write."""

    before: Act
    act: Act
    write: str


CHANGES = (
    Change(_abort, _restore, "restore_checkpoint"),
    Change(_abort, _restore_first_turn, "restore_checkpoint"),
    Change(_leave, _restore_first_turn, "restore_checkpoint"),
    Change(_leave, _switch, "switch_branch"),
    Change(_wait_elsewhere, _switch, "switch_branch"),
    Change(_nothing, _regenerate, "branch_session"),
    Change(_respond, _resume, "save_state"),
)


@check("X9", "the stream of a restored or switched session shows that session, whatever it showed before")
async def replaced_streams(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for number, change in enumerate(CHANGES):
        session_id = f"s{number}"
        await _waiting(stores, clock, session_id)
        async with executor_on(stores, clock) as executor:
            await change.before(executor, session_id)
            await change.act(executor, session_id)
            await _expect_shown(stores, executor, session_id)


@check("X9", "a stream that a process left behind its session when it died is repaired by the next one")
async def streams_left_behind(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    for number, change in enumerate(CHANGES):
        for follow_up in (_say, _answer, _interrupt, _interrupt_and_answer, _abort):
            session_id = f"s{number}{follow_up.__name__}"
            await _waiting(stores, clock, session_id)
            async with executor_on(stores, clock) as executor:
                await change.before(executor, session_id)
            await _die_after(stores, clock, change, session_id)
            async with executor_on(stores, clock) as executor:
                session = await stores.state.load_state(session_id)
                if session is not None and session.status == "completed" and follow_up is not _say:
                    continue  # nothing else is possible then
                await follow_up(executor, session_id)
                await _expect_shown(stores, executor, session_id)


@check("X9", "a waiting session that is stopped from outside and continued keeps its stream")
async def stopped_and_resumed(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()
    await suspended(stores, clock, "s")
    before = await chunks_of(stores, "s")
    async with executor_on(stores, clock) as executor:
        await _interrupt(executor, "s")
        await _answer(executor, "s")
        await _expect_shown(stores, executor, "s")
    expect_same((await chunks_of(stores, "s"))[: len(before)], before, "the chunks before the stop")


async def _die_after(stores: StoreSet, clock: Clockwork, change: Change, session_id: str) -> None:
    """Perform a change in a process that dies when its write is done."""
    life = Life(commits=1, of=change.write)
    dying = executor_on(life.wrap(stores), clock)
    with suppress(Died):
        await change.act(dying, session_id)
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)
    expect_same(life.over, True, f"{session_id}: the process died")


async def _expect_shown(stores: StoreSet, executor: AgentExecutor, session_id: str) -> None:
    try:
        await expect_sound(stores, session_id)
        await expect_page(stores, executor, session_id)
    except AssertionError as error:
        roles = [message["role"] for message in await transcript(stores, session_id)]
        raise AssertionError(f"{session_id}, {roles}: {error}") from error
