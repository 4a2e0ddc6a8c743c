"""X1: a session created directly in the store with a used id neither shows nor adopts the old stream."""

from __future__ import annotations

from ...agent import Agent
from ...executor import AgentExecutor
from ...llm.scripted import Call, Reply, Script, ScriptedLLM
from ...tools.tool import tool
from ...types import CheckpointMeta
from ..expect import expect, expect_same
from ..harness import Harness
from .harness import check, executing

SECRET = "SECRET"


@tool
async def work() -> str:
    """Work."""
    return "ok"


@tool(execute="client")
def ask() -> str:
    """Ask a person."""
    raise NotImplementedError


AGENT = Agent("main", tools=[work, ask])


async def _watch(executor: AgentExecutor, session_id: str) -> None:
    """Open a view before the first turn, and read it to the end of that turn."""
    async with executor.watch(session_id) as view:
        expect_same(view.sequence, 0, "the position of a session without a stream")
        await _execute(executor, session_id)
        async for stored in view:
            expect(SECRET not in str(stored.chunk), "a view of the new session shows the earlier one's chunks")
            if stored.chunk["type"] == "client_tool_request":
                break


async def _execute(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.execute(AGENT, "Go on", session_id=session_id)).result()


async def _resume(executor: AgentExecutor, session_id: str) -> None:
    await (await executor.resume(AGENT, session_id)).result()


async def _restore(executor: AgentExecutor, session_id: str) -> None:
    store = executor.services.store
    session = await store.load_state(session_id)
    assert session is not None
    by_hand = CheckpointMeta(step_id="by hand", step_count=session.step_count)
    done = await store.save_state_and_promote_staging(session_id, session, [], by_hand)
    await executor.restore(session_id, done.checkpoint_id)


async def _abort(executor: AgentExecutor, session_id: str) -> None:
    await executor.abort(session_id)


@check("X1", "a session created directly in the store neither shows nor adopts an old stream with its id")
async def left_stream_is_foreign(harness: Harness) -> None:
    stores = await harness.open_stores()

    teller = Agent("teller", tools=[ask])
    script: dict[str, Script] = {"main": [[Call("work")], [Call("ask")]], "teller": [Reply(SECRET, [Call("ask")])]}
    async with executing(stores, ScriptedLLM(script)) as executor:
        await (await executor.execute(AGENT, "Go", session_id="source")).result()
        checkpoints = (await stores.state.list_checkpoints("source")).items
        step = next(each.checkpoint_id for each in checkpoints if each.kind == "step")
        for verb in (_watch, _execute, _resume, _restore, _abort):
            name = verb.__name__
            await (await executor.execute(teller, SECRET, session_id=name)).result()
            await stores.state.delete_session(name)  # like an expiry or an interrupted deletion: the stream stays
            await stores.state.fork_session("source", name, checkpoint_id=step)
            await verb(executor, name)
            left = [stored.chunk for stored in await stores.streams.get_all_chunks(name)]
            expect(SECRET not in str(left), f"{name}: the stream of the new session has the earlier one's chunks")
