"""AG-UI and AI SDK streams, read by the official clients, joined at every chunk."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helix_agents.backends.registry import open_stores
from helix_agents.chunks import Chunk
from helix_agents.codec import Json
from helix_agents.executor import AgentExecutor
from helix_agents.llm import ScriptedLLM
from helix_agents.llm.scripted import Reply
from helix_agents.server.wire.agui import AgUiEncoder
from helix_agents.server.wire.feed import as_question
from helix_agents.server.wire.ui_messages import UiMessageEncoder
from helix_agents.state import apply_patch
from tests.server.agents import make_executor, manager
from tests.servers.node import environment, packages, piped

JUDGE = Path(__file__).with_name("judge.mjs")
Turn = tuple[Json, list[Chunk], tuple[str, dict[str, Json]]]
"""The state that a turn starts with, its chunks, and the final event; none if the connection is cut."""


def judge(streams: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return what the official clients report about each stream."""
    given = folder / "streams.json"
    given.write_text(json.dumps(streams))
    done = subprocess.run(
        piped(str(given)),
        input=JUDGE.read_text(encoding="utf-8"),
        cwd=packages("wire"),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(answers) == len(streams)
    return answers


KINDS = ("ag-ui", "ai-sdk", "ai-sdk-6")


def encoded(kind: str, turn: Turn, place: int, *, continues: bool = False) -> list[dict[str, Any]]:
    """Return a stream joined after `place` chunks."""
    state, chunks, (name, data) = turn
    encoder: Any = AgUiEncoder("s", "r", state)
    if kind != "ag-ui":
        encoder = UiMessageEncoder("m", continues=continues, can_reset=kind == "ai-sdk")
    for chunk in chunks[:place]:
        encoder.chunk(chunk)
    events: list[dict[str, Any]] = encoder.begin()
    for chunk in chunks[place:]:
        events = [*events, *encoder.chunk(chunk)]
    return [*events, *encoder.end(name, data)] if name else events


async def turns_of(*sayings: str) -> list[Turn]:
    """Return each saying as a turn of one session; questions are agreed to. What was suspended is a turn of its own,
    too."""
    turns: list[Turn] = []
    async with open_stores("memory:") as stores, make_executor(stores) as executor:
        for saying in sayings:
            session = await stores.state.load_state("s")
            state = session.custom_state if session else manager.initial_state()
            handle = await executor.execute(manager, saying, session_id="s")
            while True:
                rested = await handle.result()
                chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
                asked = [as_question(wait) for wait in rested.suspended]
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
        {"kind": "ai-sdk-6", "name": "no such part in 6", "events": [{"type": "start-step"}, {"type": "reset-step"}]},
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


@pytest.mark.parametrize("kind", KINDS)
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
    """Return a turn whose first attempt at a step was taken back, as after a crash, in each state of the attempt."""
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


# -- a message that the user has responded to


def tool_parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in message["parts"] if part["type"] == "dynamic-tool"]


def responded(message: dict[str, Any], *, approved: bool) -> dict[str, Any]:
    """Return the message as the client has it when the user has responded: `addToolApprovalResponse`,
    `addToolOutput`."""
    parts = []
    for part in message["parts"]:
        if part.get("state") == "approval-requested":
            part = {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": approved}}
        elif part.get("state") == "input-available":
            part = {**part, "state": "output-available", "output": "yes"}
        parts.append(part)
    return {**message, "parts": parts}


@pytest.mark.parametrize("kind", ["ai-sdk", "ai-sdk-6"])
@pytest.mark.parametrize("saying", ["delete a.txt", "delete a.txt b.txt", "ask your name"])
async def test_a_call_that_the_user_responded_to_is_updated_not_repeated(
    kind: str, saying: str, tmp_path: Path
) -> None:
    waiting, rest = await turns_of(saying)
    (asked,) = judge([{"kind": kind, "name": "asks", "events": encoded(kind, waiting, 0)}], tmp_path)
    assert {part["state"] for part in tool_parts(asked["message"])} <= {"approval-requested", "input-available"}
    message = responded(asked["message"], approved=True)
    events = encoded(kind, rest, len(waiting[1]), continues=True)
    given = {"kind": kind, "name": "continues", "events": events, "message": message}
    (done,) = judge([given], tmp_path)
    assert done["problem"] is None
    calls = tool_parts(done["message"])
    assert [part["toolCallId"] for part in calls] == [part["toolCallId"] for part in tool_parts(message)]
    assert {part["state"] for part in calls} == {"output-available"}
    assert done["message"]["parts"][-1]["type"] == "text", "and the model's reply follows in a step of its own"
    assert [part["type"] for part in done["message"]["parts"]].count("step-start") == 2


@pytest.mark.parametrize("kind", ["ai-sdk", "ai-sdk-6"])
async def test_the_arguments_that_a_person_changed_replace_those_of_the_call(kind: str, tmp_path: Path) -> None:
    waiting, (state, chunks, last) = await turns_of("delete a.txt")
    changed = [
        {**chunk, "arguments": {"path": "b.txt"}} if chunk["type"] == "tool_start" else chunk for chunk in chunks
    ]
    (asked,) = judge([{"kind": kind, "name": "asks", "events": encoded(kind, waiting, 0)}], tmp_path)
    events = encoded(kind, (state, changed, last), len(waiting[1]), continues=True)
    message = responded(asked["message"], approved=True)
    (done,) = judge([{"kind": kind, "name": "continues", "events": events, "message": message}], tmp_path)
    assert [part["input"] for part in tool_parts(done["message"])] == [{"path": "b.txt"}]
