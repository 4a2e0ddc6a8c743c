"""X9: a process that freezes at any call of any operation, and wakes up after another one has claimed, restored or
recreated the session, changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...errors import (
    AlreadyRunning,
    CheckpointNotFound,
    HelixError,
    ModelError,
    NotResumable,
    RunLost,
    SessionNotFound,
    VersionConflict,
)
from ...executor import AgentExecutor
from ...llm.scripted import Call, ScriptedLLM
from ...types import SessionState
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .frozen import Freezer, places
from .harness import Clockwork, check, make_executor, simple_agent, transcript
from .mortal import Life
from .x9_standing import Gated, ask, work

LEASE_SECONDS = 30.0
PATIENCE_SECONDS = 60
AGENT = simple_agent(ask, work)
REFUSALS = (AlreadyRunning, CheckpointNotFound, NotResumable, RunLost, SessionNotFound, VersionConflict)

CHECKPOINTS: dict[str, str] = {}
"""The oldest checkpoint of each session, to restore it to."""

Act = Callable[[AgentExecutor, str], Awaitable[Any]]


class Scene(NamedTuple):
    """A prepared session, what a process does with it, and what another one does while the first is frozen."""

    prepare: Callable[[StoreSet, Clockwork, str], Awaitable[None]]
    act: Act
    meanwhile: Act


def executor_on(stores: StoreSet, clock: Clockwork, *script: Any) -> AgentExecutor:
    llm = ScriptedLLM(list(script) or [f"Answer {number}." for number in range(9)])
    return make_executor(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS, agents=[AGENT])


async def _nothing(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    """Leave the session to be created."""


async def _crashed(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    llm = Gated(["Never said."])
    dead = make_executor(stores, llm, clock=clock, lease_seconds=LEASE_SECONDS)
    await dead.execute(AGENT, "One", session_id=session_id)
    await llm.reached.wait()
    await dead.close()
    clock.pass_seconds(LEASE_SECONDS + 1)


async def suspended(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    async with executor_on(stores, clock, [Call("ask")]) as executor:
        await executor.run(AGENT, "One", session_id=session_id)


async def completed(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    async with executor_on(stores, clock) as executor:
        for text in ("One", "Two"):
            await executor.run(AGENT, text, session_id=session_id)
    CHECKPOINTS[session_id] = (await stores.state.list_checkpoints(session_id)).items[-1].checkpoint_id


async def _failed(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    async with executor_on(stores, clock, ModelError("no")) as executor:
        await executor.run(AGENT, "One", session_id=session_id)


async def _unclosed(stores: StoreSet, clock: Clockwork, session_id: str) -> None:
    life = Life(commits=1, apart=True)
    dying = executor_on(life.wrap(stores), clock)
    try:
        await dying.run(AGENT, "One", session_id=session_id)
    except HelixError:
        await life.bury()
    await dying.close()
    clock.pass_seconds(LEASE_SECONDS + 1)


async def next_turns(executor: AgentExecutor, session_id: str) -> None:
    for text in ("Other", "Another"):
        await executor.run(AGENT, text, session_id=session_id)


async def created_again(executor: AgentExecutor, session_id: str) -> None:
    await executor.delete_session(session_id)
    await executor.run(AGENT, "Anew", session_id=session_id)


async def _recover_and_continue(executor: AgentExecutor, session_id: str) -> None:
    await recover(executor, session_id)
    await next_turns(executor, session_id)


async def _restore(executor: AgentExecutor, session_id: str) -> None:
    await executor.restore(session_id, CHECKPOINTS[session_id])


async def _resume(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.resume(AGENT, session_id)).result()


async def _retry(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.retry(session_id)).result()


async def execute(executor: AgentExecutor, session_id: str) -> None:
    await executor.run(AGENT, "Mine", session_id=session_id)


async def _submit(executor: AgentExecutor, session_id: str) -> None:
    await executor.submit(AGENT, "Mine", session_id=session_id)


async def _abort(executor: AgentExecutor, session_id: str) -> None:
    await executor.abort(session_id, "stop")


async def _interrupt(executor: AgentExecutor, session_id: str) -> None:
    await executor.interrupt(session_id, "stop")


async def deleted(executor: AgentExecutor, session_id: str) -> None:
    await executor.delete_session(session_id)


async def recover(executor: AgentExecutor, session_id: str) -> None:
    """Continue or close what processes left behind."""
    for handle in await executor.recover():
        await handle.result()


async def _remains(stores: StoreSet, session_id: str) -> dict[str, Any]:
    session = await stores.state.load_state(session_id)
    info = await stores.streams.get_stream_info(session_id)
    chunks = await stores.streams.get_all_chunks(session_id) if info else []
    return {
        "status": session and [session.status, session.error, session.output, session.step_count, session.version],
        "state": session and session.custom_state,
        "transcript": await transcript(stores, session_id) if session else None,
        "branches": await stores.state.list_branches(session_id) if session else None,
        "runs": [[run.run_id, run.status] for run in await stores.state.list_runs(session_id)] if session else None,
        "stream": info and [info.status, info.error, info.latest_sequence],
        "chunks": [stored.chunk for stored in chunks],
        "usage": await _usage_of(stores, session) if session else None,
    }


async def _usage_of(stores: StoreSet, session: SessionState) -> list[str] | None:
    """Return the entries of this session, without those of an earlier one with its id."""
    if stores.usage is None:
        return None
    return [each.id for each in await stores.usage.get_entries(session.session_id, incarnation=session.incarnation)]


async def frozen_everywhere(harness: Harness, scene: Scene) -> None:
    """Freeze after the first read, when the process has loaded the session, and at later calls.

    With the default `steps` these are all of them.
    """
    stores, clock = await harness.open_stores(), Clockwork()
    counted = Freezer(0)
    await scene.prepare(stores, clock, "undisturbed")
    async with executor_on(counted.wrap(stores), clock) as executor:
        await scene.act(executor, "undisturbed")
        calls = counted.calls
    await stores.state.delete_session("undisturbed")
    for number, after in places(calls, seed=harness.options.seed, most=harness.options.steps // 5):
        if (number, after) == (1, False):
            continue  # it has not read anything yet
        session_id, freezer = f"s{number}-{after}", Freezer(number, after=after)
        await scene.prepare(stores, clock, session_id)
        await _frozen_at(stores, clock, scene, session_id, freezer)
        await stores.state.delete_session(session_id)
        await stores.streams.delete_stream(session_id)


async def _frozen_at(stores: StoreSet, clock: Clockwork, scene: Scene, session_id: str, freezer: Freezer) -> None:
    slow, quick = executor_on(freezer.wrap(stores), clock), executor_on(stores, clock)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            acting = asyncio.ensure_future(scene.act(slow, session_id))
            freezing = asyncio.create_task(freezer.frozen.wait())
            await asyncio.wait({acting, freezing}, return_when=asyncio.FIRST_COMPLETED)
            freezing.cancel()
            if acting.done():
                return  # the call belonged to a run that had ended by then
            clock.pass_seconds(LEASE_SECONDS + 1)
            await scene.meanwhile(quick, session_id)
            before = await _remains(stores, session_id)
            freezer.wake()
            outcome = (await asyncio.gather(acting, return_exceptions=True))[0]
    finally:
        freezer.wake()
        await slow.close()
        await quick.close()
    what = f"{scene.act.__name__} frozen at call {freezer.calls}, {freezer.place}: {outcome!r}"
    expect(
        not isinstance(outcome, BaseException) or isinstance(outcome, REFUSALS), f"{what}: neither done nor rejected"
    )
    after = await _remains(stores, session_id)
    if scene.prepare is _nothing and after["status"] is not None:
        return  # it was frozen before it created the session
    if before["usage"] is not None and after["usage"] is not None:
        # With separate stores, a lost run still records the usage of its model. Nothing may disappear.
        after["usage"] = [each for each in after["usage"] if each in before["usage"]]
    expect_same(after, before, what)


@check("X9", "an abort or interrupt that freezes anywhere does not change a later turn", kind="faults")
async def frozen_stops(harness: Harness) -> None:
    for prepare in (_crashed, suspended):
        for act in (_abort, _interrupt):
            await frozen_everywhere(harness, Scene(prepare, act, next_turns))


@check("X9", "a restore that freezes anywhere does not change a later turn", kind="faults")
async def frozen_restore(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(completed, _restore, next_turns))


@check("X9", "a start, resume or retry that freezes anywhere does not change a later turn", kind="faults")
async def frozen_starts(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(completed, execute, next_turns))
    for prepare in (completed, _crashed, suspended):
        await frozen_everywhere(harness, Scene(prepare, _submit, _recover_and_continue))
    await frozen_everywhere(harness, Scene(_crashed, _resume, next_turns))
    await frozen_everywhere(harness, Scene(_failed, _retry, next_turns))


@check("X9", "a worker that freezes while it closes a dead run does not change a later turn", kind="faults")
async def frozen_close(harness: Harness) -> None:
    await frozen_everywhere(harness, Scene(_unclosed, recover, next_turns))


@check("X9", "an operation that freezes anywhere does not change a session that was recreated", kind="faults")
async def frozen_before_a_rebirth(harness: Harness) -> None:
    for prepare, act in ((_crashed, _abort), (completed, _restore), (completed, execute), (_crashed, _resume)):
        await frozen_everywhere(harness, Scene(prepare, act, created_again))


@check("X9", "a delete that freezes anywhere does not change a session that was recreated", kind="faults")
async def frozen_delete(harness: Harness) -> None:
    for prepare in (_crashed, completed):
        await frozen_everywhere(harness, Scene(prepare, deleted, created_again))


@check(
    "X9", "an operation that freezes anywhere leaves nothing of a session that was deleted since then", kind="faults"
)
async def frozen_before_a_deletion(harness: Harness) -> None:
    for prepare, act in ((completed, execute), (completed, _submit), (_crashed, _resume), (_crashed, _abort)):
        await frozen_everywhere(harness, Scene(prepare, act, deleted))
    for act in (execute, _submit):
        await frozen_everywhere(harness, Scene(_nothing, act, deleted))
