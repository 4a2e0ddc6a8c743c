"""X2: where one backend holds sessions and streams, the claim of a turn also starts its stream."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

from ...errors import HelixError, SessionExists, StreamError, StreamFenced, VersionConflict
from ...llm.scripted import Call, ScriptedLLM
from ...stores.along import Along
from ...streams.contract import StreamInfo
from ...tools.tool import tool
from ...types import CheckpointMeta, SessionState
from ..expect import expect, expect_same, raises
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, chunks_of, executing, make_executor, of_type, simple_agent
from .mortal import Life
from .view import View

META = CheckpointMeta("turn", 0, 0)


def _start(stores: StoreSet, fence: int, seen: StreamInfo | None) -> Along | None:
    if not stores.state.carries(stores.streams, stores.usage):
        return None
    return Along(start=stores.streams.starting("s", fence=fence, seen=seen))


async def _claim(stores: StoreSet, along: Along, version: int) -> None:
    state = SessionState("s", "main")
    await stores.state.save_state_and_promote_staging("s", state, [], META, expected_version=version, along=along)


async def _standing(stores: StoreSet) -> tuple[object, ...]:
    session, info = await stores.state.load_state("s"), await stores.streams.get_stream_info("s")
    return session and session.version, info, await chunks_of(stores, "s")


@check("X2", "a claim that starts its stream does both or neither, whether the session or the stream rejects it")
async def a_claim_starts_its_stream(harness: Harness) -> None:
    stores = await harness.open_stores()
    first = _start(stores, 5, None)
    if first is None:
        return  # then the executor starts the stream after the claim
    await stores.state.create_session("s", agent_type="main", along=first)
    info = await stores.streams.get_stream_info("s")
    assert info is not None
    expect_same([info.status, info.latest_sequence, info.fence], ["active", 0, 5], "the stream of a new session")
    before = await _standing(stores)
    again, other = _start(stores, 6, info), _start(stores, 6, None)
    assert again is not None
    assert other is not None
    with raises(SessionExists, "a session that exists"):
        await stores.state.create_session("s", agent_type="main", along=again)
    with raises(StreamError, "a new stream where there is one"):
        await _claim(stores, other, 1)
    with raises(VersionConflict, "a claim at a wrong version"):
        await _claim(stores, again, 7)
    expect_same(await _standing(stores), before, "session and stream after rejected claims")
    writer = stores.streams.attach_writer("s", "run", "main", fence=5)
    assert writer is not None
    await writer.write({"type": "text_delta", "delta": "one", "step": 1})
    expect_same(await writer.flush(), 1, "the sequence of the first chunk")
    before, seen = await _standing(stores), await stores.streams.get_stream_info("s")
    with raises(StreamError, "a stream that has changed since it was read"):
        await _claim(stores, again, 1)
    small = _start(stores, 4, seen)
    assert small is not None
    with raises(StreamFenced, "a stream with a newer owner"):
        await _claim(stores, small, 1)
    expect_same(await _standing(stores), before, "session and stream after streams rejected a claim")
    good = _start(stores, 6, seen)
    assert good is not None
    assert good.start is not None
    await _claim(stores, good, 1)
    expect_same([chunk["type"] for chunk in await chunks_of(stores, "s")], ["stream_resync"], "the chunks of the turn")
    info = await stores.streams.get_stream_info("s")
    expect_same(info and [info.status, info.latest_sequence, info.fence], ["active", 2, 6], "the stream of the turn")
    expect_same(good.start.sequence, 2, "the sequence that the start announced")
    with raises(StreamFenced, "the previous owner"):
        await writer.write({"type": "text_delta", "delta": "late", "step": 1})
        await writer.flush()


@check("X2", "a run that dies with its reply stored and its chunks lost shows both messages again", kind="faults")
async def dead_before_its_chunks_are_stored(harness: Harness) -> None:
    stores, clock = await harness.open_stores(), Clockwork()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], "One.", [Call("work")], "Two."])
    seen: dict[str, list[Any]] = {"undisturbed": [], "dead": []}
    for session_id, message in itertools.product(seen, ("Go", "And now?")):
        dies = session_id == "dead"
        if dies:
            life = Life(commits=1, of="stage_calls")
            dying = make_executor(life.wrap(stores), llm, clock=clock)
            with suppress(HelixError):
                await dying.run(agent, message, session_id=session_id)
            await life.bury()
            await dying.close()
            await stores.streams.delete_stream(session_id)
            clock.pass_seconds(60)
        async with executing(stores, llm, clock=clock, agents=[agent]) as executor:
            if dies:
                await (await executor.resume(agent, session_id)).result()
            else:
                await executor.run(agent, message, session_id=session_id)
        view = View()
        for chunk in await chunks_of(stores, session_id):
            view.take(chunk)
        seen[session_id].append(view.summary())
    expect_same(seen["dead"], seen["undisturbed"], "what readers see of both turns")


@check("X2", "a turn starts at the position that its run records, even on a stream that was reset or reused")
async def a_turn_starts_on_any_stream(harness: Harness) -> None:
    stores = await harness.open_stores()
    async with await stores.streams.create_writer("s", "old", "main", fence=3) as writer:
        await writer.write({"type": "text_delta", "delta": "of another session", "step": 1})
    texts = ["One.", "Two.", "Three."]
    async with executing(stores, ScriptedLLM(texts)) as executor:
        for turn, text in enumerate(texts, start=1):
            if turn == 3:
                await stores.streams.reset_stream("s")  # unlike what the second turn left
            handle = await executor.execute(simple_agent(), "Go", session_id="s")
            await handle.result()
            run = await stores.state.get_current_run("s")
            stored = await stores.streams.get_all_chunks("s")
            shown = "".join(chunk["delta"] for chunk in of_type([each.chunk for each in stored], "text_delta"))
            expect_same([run and run.turn, shown], [turn, text], "the turn and what it shows")
            expect_same(run and run.start_sequence, handle.start_sequence, "where the run starts")
            expect(stored[0].sequence == handle.start_sequence, "the first chunk of a turn is not the reset")
