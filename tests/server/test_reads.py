"""How often a request reads a session, and whether it loads custom state that it does not show."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM
from helix_agents.inmemory import InMemoryStateStore, InMemoryStreamManager
from helix_agents.server import User, create_app
from helix_agents.stores.state.commit import StoredConversation, StoredSession
from tests.server.test_access import client_of

AGENT = Agent("agent")
STATE, NO_STATE = True, False


class CountingStore(InMemoryStateStore):
    """Records for each read of a session whether it loads custom state."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[bool] = []

    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        self.reads.append(custom_state)
        return await super()._read_session(session_id, custom_state=custom_state)

    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        self.reads.append(custom_state)
        return await super()._read_conversation(session_id, offset, custom_state=custom_state)


@pytest.mark.parametrize(
    ("path", "reads"),
    [
        ("/sessions/s", [STATE]),
        ("/sessions/s/state", [STATE]),
        ("/sessions/s/messages", [NO_STATE]),
        ("/sessions/s/runs", [NO_STATE]),
        ("/sessions/s/children", [NO_STATE]),
        ("/sessions/s/checkpoints", [NO_STATE]),
        ("/sessions/s/usage", [NO_STATE]),
        ("/result/s", [NO_STATE]),
        ("/sessions/s/snapshot", [NO_STATE, STATE]),  # may the user see it? then all of it
        ("/stream/s", [NO_STATE, NO_STATE]),  # again once the stream is open: the id may have changed hands
    ],
)
async def test_a_request_reads_a_session_once_and_only_what_it_shows(path: str, reads: list[bool]) -> None:
    store = CountingStore()
    executor = AgentExecutor(store, InMemoryStreamManager(), ScriptedLLM(["Hello."]), agents=[AGENT])
    async with executor:
        await executor.run(AGENT, "Hi", session_id="s", user_id="ann")
        async with client_of(create_app(executor, authenticate=lambda _: User("ann"))) as client:
            store.reads.clear()
            assert (await client.get(path)).status_code == 200
    assert store.reads == reads


@pytest.mark.parametrize("session_id", ["s", "new"])
async def test_starting_a_run_loads_custom_state_once(session_id: str) -> None:
    store = CountingStore()
    executor = AgentExecutor(store, InMemoryStreamManager(), ScriptedLLM(["Hello.", "Again."]), agents=[AGENT])
    async with executor:
        await executor.run(AGENT, "Hi", session_id="s", user_id="ann")
        async with client_of(create_app(executor, authenticate=lambda _: User("ann"))) as client:
            store.reads.clear()
            body: dict[str, Any] = {"agent_type": "agent", "session_id": session_id, "message": "More"}
            assert (await client.post("/execute", json=body)).status_code == 202
    assert store.reads[0] is NO_STATE
    assert store.reads.count(STATE) == 1
