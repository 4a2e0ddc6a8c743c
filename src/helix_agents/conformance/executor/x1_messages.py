"""X1: messages have ids that survive crashes, forks and restores; user messages are streamed."""

from __future__ import annotations

from typing import Any

from ...errors import ModelError
from ...executor.step.decisions import step_id_of
from ...llm.scripted import Call, ScriptedLLM
from ...tools.tool import tool
from ..expect import expect, expect_same
from ..harness import Harness, StoreSet
from .harness import Clockwork, check, chunks_of, executing, make_executor, simple_agent
from .mortal import Died, Life
from .x1_queue import Gated

LEASE_SECONDS = 30.0


async def _messages(stores: StoreSet, session_id: str) -> list[Any]:
    return list((await stores.state.get_messages(session_id, limit=None)).items)


async def _ids(stores: StoreSet, session_id: str) -> list[str]:
    """Return the ids of the user and assistant messages, which must exist and be unique."""
    messages = [message for message in await _messages(stores, session_id) if message["role"] in ("user", "assistant")]
    ids: list[Any] = [message.get("id") for message in messages]
    expect(all(isinstance(given, str) and given for given in ids), f"messages without an id: {ids}")
    expect_same(len(set(ids)), len(ids), f"the number of different ids in {ids}")
    return ids


@check("X1", "a user message keeps its id if the id is valid and new in the conversation")
async def ids_of_messages(harness: Harness) -> None:
    stores = await harness.open_stores()
    gated = Gated()
    async with executing(stores, gated.llm()) as executor:
        handle = await executor.execute(gated.agent, {"role": "user", "content": "Go", "id": "mine-1"}, session_id="s")
        await gated.begun.wait()
        for given in ("mine-2", "mine-1", "", 7, "{}", "helix/1", "x" * 300, None):
            message = {"role": "user", "content": f"{given}", "id": given}
            await executor.execute(gated.agent, message, session_id="s", if_running="enqueue")
        gated.gate.set()
        await handle.result()
        again = [{"role": "user", "content": "A", "id": "mine-2"}, {"role": "user", "content": "B", "id": "mine-3"}]
        await executor.run(gated.agent, again, session_id="s")
    kept = [given if given.startswith("mine") else "" for given in await _ids(stores, "s")]
    expect_same(kept, ["mine-1", "", "mine-2", *[""] * 7, "", "", "mine-3", ""], "the ids that were stored")


@check(
    "X1",
    "a step that a crash repeats gives its messages the same ids; forks and restored sessions keep them",
    kind="faults",
)
async def ids_are_stable(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    agent, llm = simple_agent(work), ScriptedLLM([[Call("work")], "Done."])
    options: dict[str, Any] = {"clock": clock, "lease_seconds": LEASE_SECONDS}
    for last in range(1, 40):
        session_id = f"dead at {last}"
        life = Life(last)
        dying = make_executor(life.wrap(stores), llm, **options)
        try:
            await (await dying.execute(agent, "Go", session_id=session_id)).result()
        except Died:
            await life.bury()
        await dying.close()
        clock.pass_seconds(LEASE_SECONDS + 1)
        if not (before := await _known_ids(stores, session_id)):
            continue
        async with executing(stores, llm, **options) as executor:
            if (await executor.can_resume(session_id)).can_resume:
                await (await executor.resume(agent, session_id)).result()
            expect_same((await _ids(stores, session_id))[: len(before)], before, f"the ids of a run {session_id}")
        if not life.over:
            break
    ids = await _ids(stores, session_id)
    first = (await stores.state.list_checkpoints(session_id, limit=50)).items[-1]
    async with executing(stores, llm, **options) as executor:
        await executor.fork_session(session_id, "fork")
        expect_same(await _ids(stores, "fork"), ids, "the ids of a fork")
        await executor.restore(session_id, first.checkpoint_id)
    expect_same(await _ids(stores, session_id), ids[:1], "the ids of a session that was restored")


async def _known_ids(stores: StoreSet, session_id: str) -> list[str]:
    """Return the ids of the stored messages and of a staged reply."""
    session, run = await stores.state.load_state(session_id), await stores.state.get_current_run(session_id)
    if session is None or run is None:
        return []
    staged = await stores.state.list_staged(session_id, step_id_of(session, run.run_id))
    answers: list[Any] = [row.result for row in staged if row.kind == "answer"]
    return [*await _ids(stores, session_id), *(answer["message"]["id"] for answer in answers)]


def _shown(chunks: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the user messages on a stream."""
    return [chunk["message"]["id"] for chunk in chunks if chunk["type"] == "user_message"]


@check("X1", "a user message appears once on the stream, when a run reads it, even if it was enqueued")
async def user_messages_are_shown(harness: Harness) -> None:
    stores = await harness.open_stores()
    gated = Gated()
    async with executing(stores, gated.llm()) as executor:
        handle = await executor.execute(gated.agent, "Go", session_id="s")
        await gated.begun.wait()
        for text in ("one", "two"):
            await executor.execute(gated.agent, text, session_id="s", if_running="enqueue")
        gated.gate.set()
        await handle.result()
        chunks = await chunks_of(stores, "s")
        said = [message for message in await _messages(stores, "s") if message["role"] == "user"]
        shown = [chunk["message"] for chunk in chunks if chunk["type"] == "user_message"]
        expect_same(shown, said, "the messages on the stream")
        places = [chunk["type"] for chunk in chunks if chunk["type"] in ("user_message", "step_committed", "output")]
        asked, committed = "user_message", "step_committed"
        expect_same(places, [asked, committed, asked, asked, committed, "output"], "their position")
        replies = [message["id"] for message in await _messages(stores, "s") if message["role"] == "assistant"]
        named = [chunk["message_id"] for chunk in chunks if chunk["type"] == committed]
        expect_same(named, replies, "the assistant messages that the commits name")
        await executor.run(gated.agent, "More", session_id="s")
        expect_same(_shown(await chunks_of(stores, "s")), (await _ids(stores, "s"))[-2:-1], "the next turn's message")


@check("X1", "however a run dies and is continued, each user message appears once on the stream", kind="faults")
async def user_messages_are_shown_once(harness: Harness) -> None:
    stores = await harness.open_stores()
    clock = Clockwork()
    options: dict[str, Any] = {"clock": clock, "lease_seconds": LEASE_SECONDS}
    agent, llm = simple_agent(), ScriptedLLM(lambda request: f"Read {len(request.messages)}.")
    broken = ScriptedLLM([ModelError("down")])
    for last in range(1, 60):
        session_id = f"dead at {last}"
        async with executing(stores, broken, **options) as executor:
            await executor.run(agent, "Lost", session_id=session_id)
        life = Life(last, reply_lost=last % 2 == 0)
        dying = make_executor(life.wrap(stores), llm, **options)
        try:
            await (await dying.execute(agent, "Go", session_id=session_id)).result()
        except Died:
            await life.bury()
        await dying.close()
        clock.pass_seconds(LEASE_SECONDS + 1)
        async with executing(stores, llm, **options) as executor:
            handle = await executor.execute(agent, "On", session_id=session_id)
            await handle.result()
        chunks = await chunks_of(stores, session_id)
        said = [message["id"] for message in await _messages(stores, session_id) if message["role"] == "user"]
        turn = (await stores.state.list_runs(session_id))[-1].turn
        expect_same(
            _shown(chunks), said[1:] if turn == 2 else said[-1:], f"the messages on the stream of a run {session_id}"
        )
        if not life.over:
            break
