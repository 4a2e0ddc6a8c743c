"""AG-UI and AI SDK streams, judged by the official clients, joined at every chunk."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from helix_agents.backends.registry import open_stores
from helix_agents.chunks import Chunk
from helix_agents.codec import Json
from helix_agents.executor import AgentExecutor
from helix_agents.llm import ScriptedLLM
from helix_agents.llm.scripted import Reply
from helix_agents.server.wire.agui import AgUiEncoder
from helix_agents.server.wire.ui_messages import UiMessageEncoder
from helix_agents.state import apply_patch
from tests.server.cast import make_executor, manager
from tests.server.running import execute, result
from tests.servers.node import environment, node, packages

JUDGE = Path(__file__).with_name("judge.mjs")
Turn = tuple[Json, list[Chunk], tuple[str, dict[str, Json]]]
"""The state that a turn begins with, its chunks, and the last word; none if the connection is cut."""


def judge(streams: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """What the official clients say of each stream."""
    home = packages("wire")
    script = home / JUDGE.name
    script.write_text(JUDGE.read_text())
    given = folder / "streams.json"
    given.write_text(json.dumps(streams))
    command = [str(node()), str(script), str(given)]
    done = subprocess.run(command, cwd=home, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(answers) == len(streams)
    return answers


def encoded(kind: str, turn: Turn, place: int) -> list[dict[str, Any]]:
    """A stream joined after `place` chunks."""
    state, chunks, (name, data) = turn
    encoder: Any = AgUiEncoder("s", "r", state) if kind == "ag-ui" else UiMessageEncoder("m")
    for chunk in chunks[:place]:
        encoder.chunk(chunk)
    events: list[dict[str, Any]] = encoder.begin()
    for chunk in chunks[place:]:
        events = [*events, *encoder.chunk(chunk)]
    return [*events, *encoder.end(name, data)] if name else events


async def turns_of(*sayings: str) -> list[Turn]:
    """Each saying as a turn of one session; questions are agreed to. What was suspended is a turn of its own, too."""
    turns: list[Turn] = []
    async with open_stores("memory:") as stores, make_executor(stores) as executor:
        for saying in sayings:
            session = await stores.state.load_state("s")
            state = session.custom_state if session else manager.initial_state()
            handle = await executor.execute(manager, saying, session_id="s")
            while True:
                rested = await handle.result()
                chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
                asked = [
                    {
                        "tool_call_id": wait.tool_call_id,
                        "tool_name": wait.tool_name,
                        "input": wait.input,
                        "kind": "approval" if wait.approval_id else "client",
                    }
                    for wait in rested.suspended
                ]
                last: tuple[str, dict[str, Json]] = ("pause", {"status": rested.status, "suspended": asked})
                if rested.status == "completed":
                    last = ("end", {"status": "completed", "output": rested.output})
                elif rested.status == "failed":
                    last = ("fail", {"error": rested.error})
                turns.append((state, chunks, last))
                if not asked:
                    break
                for wait in rested.suspended:
                    answer: dict[str, Any] = {"approved": True} if wait.approval_id else {"result": "yes"}
                    await executor.submit_tool_result("s", wait.tool_call_id, **answer)
                handle = await handle.resume()
    return turns


def test_the_judges_refuse_what_is_wrong(tmp_path: Path) -> None:
    wrong = [
        {"kind": "ag-ui", "name": "no start", "events": [{"type": "STATE_SNAPSHOT", "snapshot": {}}]},
        {"kind": "ai-sdk", "name": "no such part", "events": [{"type": "nonsense"}]},
        {"kind": "ai-sdk", "name": "never opened", "events": [{"type": "text-delta", "id": "t", "delta": "x"}]},
    ]
    assert all(answer["problem"] for answer in judge(wrong, tmp_path))


SAYINGS = (
    "hello",
    "search ants",
    "delete a.txt b.txt",
    "ask your name",
    "tell search bees",
    "tell delete c.txt",
    "talk 30",
)


@pytest.mark.parametrize("kind", ["ag-ui", "ai-sdk"])
async def test_both_clients_accept_every_turn_joined_anywhere(kind: str, tmp_path: Path) -> None:
    turns = [*await turns_of(*SAYINGS), *await rewound(), await failed()]
    streams = [
        {"kind": kind, "name": f"turn {number} from {place}", "events": encoded(kind, turn, place)}
        for number, turn in enumerate(turns)
        for place in range(len(turn[1]) + 1)
    ]
    assert len(streams) > 100
    refused = [answer for answer in judge(streams, tmp_path) if answer["problem"]]
    assert refused == []


async def rewound() -> list[Turn]:
    """A turn whose first attempt at a step was taken back, as after a crash, in each state of the attempt."""
    _, (state, chunks, last) = await turns_of("hello", "search ants")
    begun, step = chunks[:2], [chunk for chunk in chunks[2:] if chunk.get("step") == 1]
    marker = {"type": "stream_rewound", "step": 0, "step_count": 0}
    again = [{**chunk, "agent_id": "another-run"} for chunk in chunks[2:]]
    return [(state, [*begun, *step[:cut], marker, *again], last) for cut in range(1, len(step))]


async def failed() -> Turn:
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores.state, stores.streams, ScriptedLLM([Reply("Half a")])) as executor:
            handle = await executor.execute(manager, "go", session_id="s")
            await handle.result()
        chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    return {}, [*chunks[:-1], {"type": "error", "error": "broken"}], ("fail", {"error": "broken"})


async def test_the_state_of_an_ag_ui_client_is_the_sessions_wherever_it_joins() -> None:
    for turn in await turns_of("search ants", "tell search bees", "delete a.txt"):
        for place in range(len(turn[1]) + 1):
            state: Json = None
            for event in encoded("ag-ui", turn, place):
                if event["type"] == "STATE_SNAPSHOT":
                    state = event["snapshot"]
                elif event["type"] == "STATE_DELTA":
                    state = apply_patch(state, event["delta"])
            whole = turn[0]
            for chunk in turn[1]:
                if chunk["type"] == "state_patch":
                    whole = apply_patch(whole, chunk["patches"])
            assert state == whole


async def test_a_message_of_the_ai_sdk_holds_what_was_said_and_done(tmp_path: Path) -> None:
    (turn,) = await turns_of("search ants")
    (answer,) = judge([{"kind": "ai-sdk", "name": "x", "events": encoded("ai-sdk", turn, 0)}], tmp_path)
    parts = answer["message"]["parts"]
    assert [part["type"] for part in parts if part["type"] != "step-start"] == [
        "reasoning",
        "text",
        "dynamic-tool",
        "data-progress",
        "text",
    ]
    tool = next(part for part in parts if part["type"] == "dynamic-tool")
    assert (tool["state"], tool["output"]) == ("output-available", "Three pages speak of ants.")


# -- over HTTP


async def events_of(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> list[dict[str, Any]]:
    async with asyncio.timeout(60), client.stream(method, path, **options) as response:
        text = (await response.aread()).decode()
        assert response.status_code == 200, text
    assert response.headers["content-type"] == "text/event-stream"
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def test_streams_over_http_are_accepted_at_every_place(
    alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    await execute(alice, "tell search ants", sid)
    await result(alice, sid)
    latest = (await alice.get(f"/sessions/{sid}/snapshot")).json()["sequence"]
    streams = []
    for kind in ("ag-ui", "ai-sdk"):
        for place in range(0, latest, 3):
            events = await events_of(alice, "GET", f"/stream/{sid}?format={kind}&from_sequence={place}")
            streams.append({"kind": kind, "name": f"{kind} {place}", "events": events})
    assert [answer for answer in judge(streams, tmp_path) if answer["problem"]] == []


def agui_input(session_id: str, run_id: str, text: str | None = None, **members: Any) -> dict[str, Any]:
    messages = [{"id": "u1", "role": "user", "content": text}] if text else []
    return {
        "threadId": session_id,
        "runId": run_id,
        "messages": messages,
        "tools": [],
        "context": [],
        "state": {},
        **members,
    }


async def test_an_ag_ui_client_runs_an_agent_and_agrees_to_a_call(
    alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    first = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "run-1", "delete a.txt"))
    assert first[0] == {"type": "RUN_STARTED", "threadId": sid, "runId": "run-1"}
    asked = first[-1]["outcome"]["interrupts"]
    assert [(each["reason"], each["metadata"]["input"]) for each in asked] == [("confirmation", {"path": "a.txt"})]
    resume = [{"interruptId": asked[0]["id"], "status": "resolved", "payload": {"approved": True}}]
    second = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "run-2", resume=resume))
    assert second[-1]["type"] == "RUN_FINISHED"
    assert second[-1]["result"] == "Done: a.txt is gone."
    assert any(event["type"] == "TOOL_CALL_RESULT" for event in second)
    third = await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "run-3", "search ants"))
    named = [{"kind": "ag-ui", "name": str(n), "events": events} for n, events in enumerate((first, second, third))]
    assert [answer for answer in judge(named, tmp_path) if answer["problem"]] == []


async def test_an_ag_ui_client_may_refuse(alice: httpx.AsyncClient, sid: str) -> None:
    asked = (await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "1", "delete a.txt")))[-1]
    resume = [{"interruptId": asked["outcome"]["interrupts"][0]["id"], "status": "cancelled"}]
    await events_of(alice, "POST", "/agui/manager", json=agui_input(sid, "2", resume=resume))
    assert (await alice.get(f"/sessions/{sid}/state")).json()["custom_state"] == {}


def chat_request(session_id: str, *messages: dict[str, Any]) -> dict[str, Any]:
    return {"id": session_id, "messages": list(messages), "trigger": "submit-message"}


def user_says(text: str) -> dict[str, Any]:
    return {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}


async def test_a_chat_of_the_ai_sdk_runs_an_agent_and_agrees_to_a_call(
    alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    first = await events_of(alice, "POST", "/chat/manager", json=chat_request(sid, user_says("delete a.txt")))
    request = next(part for part in first if part["type"] == "tool-approval-request")
    assert (await alice.get(f"/chat/{sid}/stream")).status_code == 204
    answered = {
        "id": "a",
        "role": "assistant",
        "parts": [
            {
                "type": "dynamic-tool",
                "toolName": "delete_file",
                "toolCallId": request["toolCallId"],
                "state": "approval-responded",
                "input": {"path": "a.txt"},
                "approval": {"id": request["approvalId"], "approved": True},
            }
        ],
    }
    body = chat_request(sid, user_says("delete a.txt"), answered)
    second = await events_of(alice, "POST", "/chat/manager", json=body)
    assert second[-1]["type"] == "finish"
    assert second[0] == first[0], "the same message goes on"
    assert (await alice.get(f"/sessions/{sid}/state")).json()["custom_state"] == {"deleted": ["a.txt"]}
    named = [{"kind": "ai-sdk", "name": str(n), "events": events} for n, events in enumerate((first, second))]
    assert [answer for answer in judge(named, tmp_path) if answer["problem"]] == []


async def test_a_chat_that_was_left_is_joined_again(alice: httpx.AsyncClient, sid: str) -> None:
    body = chat_request(sid, user_says("nap 1"))
    async with alice.stream("POST", "/chat/manager", json=body) as response:
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        await anext(response.aiter_lines())
    parts = await events_of(alice, "GET", f"/chat/{sid}/stream")
    assert parts[0]["type"] == "start"
    assert parts[-1]["type"] == "finish"


async def test_these_routes_keep_users_apart(alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid)
    await result(alice, sid)
    for response in (
        await bob.post("/agui/manager", json=agui_input(sid, "r", "mine")),
        await bob.post("/chat/manager", json=chat_request(sid, user_says("mine"))),
        await bob.get(f"/chat/{sid}/stream"),
        await bob.get(f"/stream/{sid}?format=ag-ui"),
    ):
        assert (response.status_code, response.json()["code"]) == (404, "session_not_found")
