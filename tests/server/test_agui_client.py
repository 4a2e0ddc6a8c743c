"""The official AG-UI client, `HttpAgent`, against a server: it ends with what is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from tests.server.running import Running, result
from tests.server.test_branches import branches_of, messages_of, texts_of
from tests.servers.node import environment, packages, piped

SCRIPT = Path(__file__).parent / "agents.mjs"

Step = dict[str, Any]


async def talk(server: Running, folder: Path, session_id: str, *steps: Step) -> list[Step]:
    """Let the client do something; return how each step ended."""
    headers = {"Authorization": "Bearer alice-token"}
    plan = {"url": f"{server.address}/agui/manager", "headers": headers, "threadId": session_id, "steps": steps}
    (folder / "plan.json").write_text(json.dumps(plan))
    process = await asyncio.create_subprocess_exec(
        *piped(str(folder / "plan.json")),
        cwd=packages("wire"),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, errors = await process.communicate(SCRIPT.read_bytes())
    assert process.returncode == 0, errors.decode()
    done: list[Step] = json.loads(out)
    return done


async def test_a_list_that_ends_earlier_runs_that_turn_again(
    server: Running, alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    steps: list[Step] = [{"say": "one"}, {"say": "two"}, {"keep": 3}, {"keep": 1}, {"say": "three"}]
    done = await talk(server, tmp_path, sid, *steps)
    assert [step.get("result") for step in done] == [
        f"You said: {word}" for word in ["one", "two", "two", "one", "three"]
    ]
    stored = await texts_of(alice, sid)
    assert stored == ["one", "You said: one", "three", "You said: three"]
    assert [content for _, content in done[-1]["messages"]] == stored
    assert len(await branches_of(alice, sid)) == 4


async def test_a_changed_message_with_a_stored_id_is_an_edit(
    server: Running, alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    steps: list[Step] = [{"say": "one"}, {"say": "two"}, {"edit": [2, "three"]}, {"edit": [0, "zero"]}, {"say": "four"}]
    done = await talk(server, tmp_path, sid, *steps)
    assert [len(step["messages"]) for step in done] == [2, 4, 4, 2, 4]
    stored = await texts_of(alice, sid)
    assert stored == ["zero", "You said: zero", "four", "You said: four"]
    assert [content for _, content in done[-1]["messages"]] == stored
    assert len(await branches_of(alice, sid)) == 4


async def test_a_question_that_waits_is_shown_again_and_left_by_an_edit(
    server: Running, alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    await talk(server, tmp_path, sid, {"say": "delete a.txt"})
    (waiting,) = (await result(alice, sid))["suspended"]
    (asked, *_) = await messages_of(alice, sid)
    message = {"id": asked["id"], "role": "user", "content": "delete a.txt"}
    body = {"threadId": sid, "runId": "again", "messages": [message]}
    again = await alice.post("/agui/manager", json=body)
    assert waiting["approval_id"] in again.text
    assert await branches_of(alice, sid) == []
    message["content"] = "hello"
    assert "You said: hello" in (await alice.post("/agui/manager", json={**body, "runId": "edit"})).text
    assert await texts_of(alice, sid) == ["hello", "You said: hello"]


async def test_a_list_that_diverges_is_rejected(
    server: Running, alice: httpx.AsyncClient, sid: str, tmp_path: Path
) -> None:
    wrong: list[Step] = [{"keep": 2}, {"say": "three"}, {"edit": [0, "zero"], "say": "four"}]
    _, _, *done = await talk(server, tmp_path, sid, {"say": "one"}, {"say": "two"}, *wrong)
    for step, place in zip(done, (1, 2, 0), strict=True):
        assert "409" in step["problem"]
        assert "conversation_diverged" in step["problem"]
        assert f'"first_difference":{place}' in step["problem"]
    assert await texts_of(alice, sid) == ["one", "You said: one", "two", "You said: two"]
