"""Regenerate, edit and switch as a caller sees them: one behavior each, on stores in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, open_stores, tool
from helix_agents.errors import (
    AlreadyRunning,
    InvalidArgument,
    ModelError,
    NotResumable,
    SessionNotFound,
    VersionConflict,
)
from helix_agents.inmemory import InMemoryStateStore, InMemoryStreamManager
from helix_agents.llm import Call, Line, ModelRequest
from helix_agents.stores.state.commit import StoredCheckpoint


@tool
async def note(ctx: ToolContext, text: str) -> str:
    """Write something down."""
    ctx.update_state(lambda draft: draft.setdefault("notes", []).append(text))
    return "noted"


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
async def wait(ctx: ToolContext) -> str:
    """Wait for the event that the caller gave."""
    await ctx.deps.wait()
    return "done"


AGENT = Agent("clerk", tools=[note, pay, wait])


class Clerk:
    """A model that replies with its number of calls and the user's last message. Some words make it call a tool."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: ModelRequest) -> Line:
        self.asked += 1
        last = request.messages[-1]
        word, _, rest = str(last["content"]).partition(" ")
        if last["role"] == "user" and word in ("note", "pay", "wait"):
            given: dict[str, dict[str, Any]] = {"note": {"text": rest}, "pay": {"amount": 1}, "wait": {}}
            return [Call(word, given[word], id=f"call-{self.asked}")]
        said = [message["content"] for message in request.messages if message["role"] == "user"]
        return f"{self.asked}: {said[-1]}"


@pytest.fixture
async def executor() -> AsyncIterator[AgentExecutor]:
    async with open_stores("memory://") as stores, AgentExecutor(stores, ScriptedLLM(Clerk()), agents=[AGENT]) as made:
        yield made


async def texts(executor: AgentExecutor, session_id: str = "s") -> list[str]:
    page = await executor.services.store.get_messages(session_id, limit=None)
    return [str(message["content"]) for message in page.items if message["role"] in ("user", "assistant")]


async def ids(executor: AgentExecutor, role: str) -> list[str]:
    page = await executor.services.store.get_messages("s", limit=None)
    return [message["id"] for message in page.items if message["role"] == role]


async def chat(executor: AgentExecutor, *inputs: str) -> None:
    for said in inputs:
        await executor.run(AGENT, said, session_id="s")


async def test_regenerate_runs_the_last_turn_again(executor: AgentExecutor) -> None:
    await chat(executor, "a", "b")
    result = await (await executor.regenerate("s")).result()
    assert result.output == "3: b"
    assert await texts(executor) == ["a", "1: a", "b", "3: b"]
    old, new = await executor.list_branches("s")
    assert (old.is_active, new.is_active) == (False, True)
    assert old.message_id == new.message_id == (await ids(executor, "user"))[1]
    assert (old.message_count, new.message_count) == (4, 4)


async def test_siblings_share_a_fork_however_often_a_turn_is_regenerated(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    for _ in range(3):
        await (await executor.regenerate("s")).result()
    branches = await executor.list_branches("s")
    assert len(branches) == 4
    assert {it.message_id for it in branches} == set(await ids(executor, "user"))
    for branch in branches:
        await executor.switch_branch("s", branch.branch_id)
    replies = []
    for branch in branches:
        await executor.switch_branch("s", branch.branch_id)
        replies.append((await texts(executor))[1])
    assert sorted(replies) == ["1: a", "2: a", "3: a", "4: a"]


async def test_regenerate_an_earlier_reply(executor: AgentExecutor) -> None:
    await chat(executor, "a", "b", "c")
    first = (await ids(executor, "assistant"))[0]
    await (await executor.regenerate("s", message_id=first)).result()
    assert await texts(executor) == ["a", "4: a"]


async def test_edit_replaces_the_first_message_too(executor: AgentExecutor) -> None:
    await chat(executor, "note one", "b")
    first = (await ids(executor, "user"))[0]
    result = await (await executor.edit("s", first, "note two")).result()
    assert result.status == "completed"
    session = await executor.services.store.load_state("s")
    assert session is not None
    assert session.custom_state == {"notes": ["two"]}
    old, new = await executor.list_branches("s")
    assert old.message_id is None
    back = await executor.switch_branch("s", old.branch_id)
    assert back.custom_state == {"notes": ["one"]}
    assert await texts(executor) == ["note one", "", "2: note one", "b", "3: b"]
    again = await executor.switch_branch("s", new.branch_id)
    assert again.custom_state == {"notes": ["two"]}


async def test_a_new_turn_follows_on_whatever_branch_is_active(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    await (await executor.regenerate("s")).result()
    old = next(it for it in await executor.list_branches("s") if not it.is_active)
    await executor.switch_branch("s", old.branch_id)
    await chat(executor, "more")
    assert await texts(executor) == ["a", "1: a", "more", "3: more"]


async def test_a_question_closes_with_its_branch_and_opens_again_with_it(executor: AgentExecutor) -> None:
    await chat(executor, "a", "pay")
    waiting = (await executor.list_waiting()).items
    assert len(waiting) == 1
    asked = (await ids(executor, "user"))[1]
    await (await executor.edit("s", asked, "never mind")).result()
    assert (await executor.list_waiting()).items == []
    old = next(it for it in await executor.list_branches("s") if not it.is_active)
    session = await executor.switch_branch("s", old.branch_id)
    assert session.status == "suspended_client_tool"
    await executor.submit_tool_result("s", waiting[0].tool_call_id, approved=True)
    result = await (await executor.resume(AGENT, "s")).result()
    assert result.status == "completed"
    page = await executor.services.store.get_messages("s", limit=None)
    assert any("paid 1" in str(message["content"]) for message in page.items)


async def test_a_running_session_is_not_left_unless_it_may_be_interrupted(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    release = asyncio.Event()
    handle = await executor.execute(AGENT, "wait", session_id="s", deps=release)
    async for chunk in handle.stream():
        if chunk["type"] == "tool_start":
            break
    with pytest.raises(AlreadyRunning):
        await executor.regenerate("s")
    first = (await ids(executor, "user"))[0]
    with pytest.raises(AlreadyRunning):
        await executor.edit("s", first, "b")
    with pytest.raises(InvalidArgument):
        await executor.regenerate("s", if_running="enqueue")
    release.set()
    result = await (await executor.edit("s", first, "b", if_running="interrupt")).result()
    assert str(result.output).endswith(": b")
    old = next(it for it in await executor.list_branches("s") if not it.is_active)
    await executor.switch_branch("s", old.branch_id)
    assert (await texts(executor))[:3] == ["a", "1: a", "wait"]


async def test_what_cannot_be_regenerated_or_edited(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    user, assistant = (await ids(executor, "user"))[0], (await ids(executor, "assistant"))[0]
    await executor.run(AGENT, "other", session_id="other")
    foreign = (await executor.services.store.get_messages("other")).items[0]["id"]
    for wrong in ("unknown", foreign, assistant):
        with pytest.raises(InvalidArgument):
            await executor.edit("s", wrong, "b")
    for wrong in ("unknown", user):
        with pytest.raises(InvalidArgument):
            await executor.regenerate("s", message_id=wrong)
    for content in (7, None, {"text": "b"}):
        with pytest.raises(InvalidArgument):
            await executor.edit("s", user, content)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        await executor.switch_branch("s", "unknown")
    for call in (executor.regenerate("missing"), executor.switch_branch("missing", "b")):
        with pytest.raises(SessionNotFound):
            await call
    with pytest.raises(SessionNotFound):
        await executor.regenerate("s", user_id="somebody else")
    assert await texts(executor) == ["a", "1: a"]
    assert await executor.list_branches("s") == []


async def test_a_session_that_never_ran_has_nothing_to_go_back_to(executor: AgentExecutor) -> None:
    store = executor.services.store
    await store.create_session("s", agent_type="clerk")
    with pytest.raises(NotResumable):
        await executor.regenerate("s")
    await store.append_messages("s", [{"role": "user", "content": "a", "id": "m"}])
    with pytest.raises(InvalidArgument):
        await executor.edit("s", "m", "b")


async def test_of_two_editors_at_once_one_wins(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    user = (await ids(executor, "user"))[0]
    done = await asyncio.gather(*(executor.edit("s", user, f"b{n}") for n in range(5)), return_exceptions=True)
    winners = [handle for handle in done if not isinstance(handle, BaseException)]
    assert len(winners) == 1
    assert all(isinstance(it, VersionConflict | AlreadyRunning) for it in done if isinstance(it, BaseException))
    await winners[0].result()
    assert len(await executor.list_branches("s")) == 2


async def test_two_hundred_branches_are_listed_and_come_back(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    for _ in range(199):
        await (await executor.regenerate("s")).result()
    branches = await executor.list_branches("s")
    assert (len(branches), sum(it.is_active for it in branches)) == (200, 1)
    for branch in (branches[0], branches[100], branches[199]):
        await executor.switch_branch("s", branch.branch_id)
        assert [it.branch_id for it in await executor.list_branches("s") if it.is_active] == [branch.branch_id]
    assert len(await texts(executor)) == 2


async def test_readers_are_told(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    handle = await executor.regenerate("s")
    await handle.result()
    chunks = [stored.chunk for stored in await executor.services.streams.get_chunks_from_step("s", 0)]
    assert [chunk["type"] for chunk in chunks[:2]] == ["stream_resync", "branch_switched"]
    assert chunks[1]["message_count"] == 1
    old = next(it for it in await executor.list_branches("s") if not it.is_active)
    await executor.switch_branch("s", old.branch_id)
    chunks = [stored.chunk for stored in await executor.services.streams.get_chunks_from_step("s", 0)]
    assert [chunk["type"] for chunk in chunks] == ["stream_resync", "branch_switched", "output"]
    assert (chunks[1]["branch_id"], chunks[1]["message_count"]) == (old.branch_id, 2)
    info = await executor.services.streams.get_stream_info("s")
    assert info is not None
    assert info.status == "ended"


async def test_an_idempotency_key_regenerates_once(executor: AgentExecutor) -> None:
    await chat(executor, "a")
    for _ in range(2):
        await (await executor.regenerate("s", idempotency_key="k")).result()
    assert len(await executor.list_branches("s")) == 2


async def test_a_turn_without_a_reply_leaves_no_branch() -> None:
    attempts: list[Line] = [ModelError("away"), ModelError("away"), "hello"]
    failing = ScriptedLLM([attempts])
    async with open_stores("memory://") as stores, AgentExecutor(stores, failing, agents=[AGENT]) as executor:
        assert (await executor.run(AGENT, "a", session_id="s")).status == "failed"
        assert (await (await executor.regenerate("s")).result()).status == "failed"
        result = await (await executor.regenerate("s")).result()
        assert result.output == "hello"
        assert await executor.list_branches("s") == []


class OvertakenStore(InMemoryStateStore):
    """A store on which another editor goes back right after the session was read, before the checkpoint is."""

    overtake: Callable[[], Awaitable[object]] | None = None

    async def _fork_row(self, *given: Any) -> StoredCheckpoint:
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            await overtake()
        return await super()._fork_row(*given)


async def test_the_slower_of_two_editors_gets_a_version_conflict_although_its_checkpoint_is_gone() -> None:
    store, streams = OvertakenStore(), InMemoryStreamManager()
    async with AgentExecutor(store, streams, ScriptedLLM(Clerk()), agents=[AGENT]) as executor:
        await chat(executor, "a", "b")
        messages = (await store.get_messages("s")).items

        async def edit_the_first() -> None:
            await (await executor.edit("s", messages[0]["id"], "A")).result()

        store.overtake = edit_the_first
        with pytest.raises(VersionConflict):
            await executor.regenerate("s")
        page = await store.get_messages("s")
        assert [message["content"] for message in page.items] == ["A", "3: A"]
