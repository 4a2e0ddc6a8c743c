"""The sweep of blobs that nothing refers to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, Stores, ToolContext, open_stores, tool
from helix_agents.clock import system_clock
from helix_agents.llm.scripted import Call
from helix_agents.operations.blobs import sweep_blobs
from helix_agents.stores.blobs.spaces import REQUESTS

LATER = 48 * 3600 * 1000


@tool(max_result_chars=200)
async def search(ctx: ToolContext) -> str:
    """Search, at length."""
    ctx.update_state(lambda draft: draft.update(found=ctx.tool_call_id))
    return ctx.tool_call_id + "x" * 1_000


@tool(requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


AGENT = Agent("a", instructions="Search.", tools=[search, pay], state={"found": None})


async def digests(stores: Stores, space: str = "s") -> set[str]:
    return {info.digest for info in (await stores.blobs.list(space)).items}


async def swept(stores: Stores, **options: Any) -> int:
    done = await sweep_blobs(stores.state, stores.blobs, now=system_clock() + LATER, **options)
    assert done.errors == []
    return done.deleted


async def searched(stores: Stores, *more: Any) -> AgentExecutor:
    executor = AgentExecutor(stores, ScriptedLLM([[Call("search")], *more, "Done.", "Done.", "Done."]))
    await executor.run(AGENT, "Go", session_id="s")
    return executor


async def sweeps(url: str) -> None:
    """Unused blobs are deleted; those that a message, state or checkpoint refers to stay, and so do shared texts."""
    async with open_stores(url) as stores:
        await searched(stores, [Call("search")])
        used, shared = await digests(stores), await digests(stores, REQUESTS)
        assert len(used) == 2
        assert shared
        kept = await stores.blobs.put("s", b"only the state refers to it")
        before = await stores.state.load_state("s")
        assert before is not None
        state = {"found": kept.digest}
        changed = msgspec.structs.replace(before, custom_state=state)
        await stores.state.save_state("s", changed, expected_version=before.version)
        orphan = await stores.blobs.put("s", b"never sent")
        assert (await sweep_blobs(stores.state, stores.blobs)).deleted == 0
        assert await swept(stores, dry_run=True) == 1
        assert orphan.digest in await digests(stores)
        assert await swept(stores) == 1
        assert await digests(stores) == used | {kept.digest}
        assert await digests(stores, REQUESTS) == shared
        checkpoints = (await stores.state.list_checkpoints("s")).items
        first = next(each for each in checkpoints if (each.kind, each.step_count) == ("step", 1))
        await stores.state.restore_checkpoint("s", first.checkpoint_id)
        await stores.state.update_status("s", "interrupted")
        assert await swept(stores) == 2
        text = str((await stores.state.get_messages("s", limit=None)).items)
        assert await digests(stores) == {digest for digest in used if digest in text}


async def test_what_is_unused_goes_in_memory() -> None:
    await sweeps("memory:")


async def test_what_is_unused_goes_on_sqlite(tmp_path: Path) -> None:
    await sweeps(f"sqlite:{tmp_path / 'a.db'}")


async def test_what_is_unused_goes_on_postgres(postgres_url: str) -> None:
    await sweeps(postgres_url)


async def test_what_is_unused_goes_on_redis(redis_url: str) -> None:
    await sweeps(redis_url)


async def test_what_a_suspended_step_and_a_sub_agent_hold_stays() -> None:
    parent = Agent("parent", tools=[AGENT.as_tool()])
    script: dict[str, Any] = {
        "parent": [[Call("a", {"input": "x"})], "Done."],
        "a": [[Call("search"), Call("pay")], "Done."],
    }
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(script))
        result = await executor.run(parent, "Go", session_id="s")
        assert len(await digests(stores)) == 1
        assert await swept(stores) == 0
        await executor.submit_tool_result("s", result.suspended[0].tool_call_id, approved=True)
        await (await executor.resume(parent, "s")).result()
        assert await swept(stores) == 0
        assert len(await digests(stores)) == 1


async def test_what_a_checkpoint_brings_back_stays() -> None:
    @tool
    async def choose(what: str, ctx: ToolContext) -> str:
        """Choose a picture."""
        ctx.update_state(lambda draft: draft.update(found=what))
        return "chosen"

    async with open_stores("memory:") as stores:
        old = await stores.blobs.put("s", b"an older picture")
        first: list[Any] = [[Call("choose", {"what": "+"})], "Done."]
        turns = iter([*first, [Call("choose", {"what": "-"})], "Done."])
        executor = AgentExecutor(stores, ScriptedLLM(lambda request: next(turns)))
        agent = Agent("a", tools=[choose], state={"found": None})
        await executor.run(agent, "Go", session_id="s")
        session = await stores.state.load_state("s")
        assert session is not None
        changed = msgspec.structs.replace(session, custom_state={"found": old.digest})
        await stores.state.save_state("s", changed, expected_version=session.version)
        await executor.run(agent, "Go", session_id="s")
        now = await stores.state.load_state("s")
        assert now is not None
        assert now.custom_state == {"found": "-"}
        assert await swept(stores) == 0
        assert await digests(stores) == {old.digest}


class Overtaken:
    """A store in which a run commits just after the sweep has read it."""

    def __init__(self, inner: Any, then: Callable[[], Awaitable[object]]) -> None:
        self._inner, self._then = inner, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def list_sub_session_refs(self, session_id: str) -> Any:
        found = await self._inner.list_sub_session_refs(session_id)
        await self._then()
        return found


async def test_a_session_that_changes_meanwhile_and_a_blob_that_is_put_again_are_spared() -> None:
    async with open_stores("memory:") as stores:
        await searched(stores)
        orphan = await stores.blobs.put("s", b"an upload")
        message = {"role": "user", "content": [{"type": "file", "media_type": "text/plain", "blob": orphan.digest}]}
        racing: Any = Overtaken(stores.state, lambda: stores.state.append_messages("s", [message]))
        done = await sweep_blobs(racing, stores.blobs, now=system_clock() + LATER)
        assert (done.deleted, done.spared) == (0, 1)
        other = await stores.blobs.put("s", b"another")
        now = (await stores.blobs.stat("s", [other.digest]))[other.digest].stored_at

        async def put_again() -> None:
            while (await stores.blobs.stat("s", [other.digest]))[other.digest].stored_at <= now:
                await stores.blobs.put("s", b"another")

        racing = Overtaken(stores.state, put_again)
        assert (await sweep_blobs(racing, stores.blobs, grace_seconds=0, now=now)).deleted == 0
        assert other.digest in await digests(stores)


async def test_a_session_with_inactive_branches_is_spared() -> None:
    async with open_stores("memory:") as stores:
        executor = await searched(stores)
        await (await executor.regenerate("s")).result()
        before = await digests(stores)
        await stores.blobs.put("s", b"never sent")
        assert await swept(stores) == 0
        assert before < await digests(stores)


async def test_a_negative_grace_is_rejected() -> None:
    async with open_stores("memory:") as stores:
        with pytest.raises(InvalidArgument):
            await sweep_blobs(stores.state, stores.blobs, grace_seconds=-1)
