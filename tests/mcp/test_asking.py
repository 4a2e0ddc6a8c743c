"""Elicitation: a server's question during a call suspends the run; any process may respond; the call is repeated."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, AgentResult, HelixError, ScriptedLLM, Stores, open_stores
from helix_agents.llm.scripted import Call
from helix_agents.mcp import MCP
from helix_agents.mcp.asking import result_of

NEW = [sys.executable, "-m", "tests.mcp.library", "stdio"]
OLD = [sys.executable, "-m", "tests.mcp.old_library"]
CALL = Call("print_book", {"title": "Emma"})


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    async with open_stores(f"sqlite:{tmp_path / 'a.db'}") as opened:
        yield opened


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def noted(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


class Process:
    """An executor with its own connections, like another process."""

    def __init__(self, stores: Stores, command: list[str], journal: Path, *calls: Call) -> None:
        self.server = MCP(command=command, env={"LIBRARY_JOURNAL": str(journal)})
        self.agent = Agent("a", tools=[self.server])
        self.executor = AgentExecutor(stores, ScriptedLLM([[*(calls or [CALL])], "Done."]), agents=[self.agent])

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.executor.close()
        await self.server.close()

    async def run(self) -> AgentResult:
        return await self.executor.run(self.agent, "go", session_id="s")

    async def answer(self, waiting: Any, **answer: Any) -> AgentResult:
        await self.executor.submit_tool_result("s", waiting.approval_id, **answer)
        return await (await self.executor.resume(self.agent, "s")).result()


async def results(stores: Stores) -> list[Any]:
    page = await stores.state.get_messages("s", limit=None)
    return [message["content"] for message in page.items if message["role"] == "tool"]


async def test_other_processes_answer_one_question_after_the_other(stores: Stores, journal: Path) -> None:
    async with Process(stores, NEW, journal) as first:
        (copies,) = (await first.run()).suspended
    assert copies.kind == "client"
    async with Process(stores, NEW, journal) as second:
        (listed,) = (await second.executor.list_waiting()).items
        assert listed.question["message"] == "How many copies?"
        assert listed.question["schema"]["properties"].keys() == {"count"}
        (paper,) = (await second.answer(copies, result={"count": 2})).suspended
        assert paper.asked is not None
        assert paper.asked.question["message"] == "Which paper?"
        assert noted(journal) == []
        assert (await second.answer(paper, result="red")).status == "completed"
    assert noted(journal) == ["print Emma 2 red"]
    assert await results(stores) == ["printed 2 on red"]


async def test_a_person_may_decline(stores: Stores, journal: Path) -> None:
    async with Process(stores, OLD, journal) as first:
        (copies,) = (await first.run()).suspended
        assert (await first.answer(copies, result={"action": "decline"})).status == "completed"
    assert await results(stores) == ["decline None"]


async def test_a_server_of_an_older_protocol_is_cancelled_and_called_again(stores: Stores, journal: Path) -> None:
    async with Process(stores, OLD, journal) as first:
        (copies,) = (await first.run()).suspended
        assert copies.asked is not None
        assert copies.asked.question["message"] == "How many copies?"
    async with Process(stores, OLD, journal) as second:
        assert (await second.answer(copies, result={"count": 4})).status == "completed"
    assert "accept 4" in noted(journal)
    assert await results(stores) == ["accept 4"]


async def test_an_older_server_that_asks_during_two_calls_is_told_so(stores: Stores, journal: Path) -> None:
    async with Process(stores, OLD, journal, CALL, CALL) as first:
        await first.run()
    assert [text for text in await results(stores) if "one at a time" in text]


async def test_the_run_is_given_up_while_a_person_thinks(stores: Stores, journal: Path) -> None:
    before = len(asyncio.all_tasks())
    async with Process(stores, OLD, journal) as first:
        await first.run()
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize(
    ("question", "answer", "action", "content"),
    [
        ({"message": "?", "schema": {"properties": {"a": {}}}}, 3, "accept", {"a": 3}),
        ({"message": "?", "schema": {"properties": {"a": {}, "b": {}}}}, {"a": 1, "b": 2}, "accept", {"a": 1, "b": 2}),
        ({"message": "?", "schema": {}}, {"action": "accept", "content": {"a": 1}}, "accept", {"a": 1}),
        ({"message": "?", "schema": {}}, {"action": "cancel"}, "cancel", None),
        ({"message": "?", "url": "https://a.test"}, True, "accept", None),
        ({"message": "?", "url": "https://a.test"}, False, "decline", None),
    ],
)
def test_answers_as_the_server_gets_them(question: Any, answer: Any, action: str, content: Any) -> None:
    made = result_of(question, answer)
    assert (made.action, made.content) == (action, content)


def test_an_answer_that_does_not_fit_is_named() -> None:
    with pytest.raises(HelixError, match="'a', 'b'"):
        result_of({"message": "?", "schema": {"properties": {"a": {}, "b": {}}}}, "yes")
