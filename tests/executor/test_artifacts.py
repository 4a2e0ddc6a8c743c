"""Large results, images and files: stored as blobs, referred to by messages, seen by models."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, open_stores, tool
from helix_agents.content import Image
from helix_agents.errors import SessionExists
from helix_agents.llm.scripted import Call
from helix_agents.stores.blobs.spaces import blobs_in

PIXELS = b"\x89PNG" + bytes(range(256)) * 40
LONG = "".join(f"line {number}\n" for number in range(700_000))


@tool
def read_log() -> str:
    """Return a long log."""
    return LONG


@tool(max_result_chars=600)
def read_table() -> list[int]:
    """Return a long list."""
    return list(range(1_000))


@tool
def draw() -> Any:
    """Return a picture."""
    return ["Here it is:", Image(PIXELS)]


AGENT = Agent("a", tools=[read_log, read_table, draw])


@pytest.fixture(params=["memory:", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Stores]:
    url = request.param if request.param == "memory:" else f"sqlite:{tmp_path}/a.db"
    async with open_stores(url) as opened:
        yield opened


async def digests(stores: Stores, space: str) -> list[str]:
    return [info.digest async for info in blobs_in(stores.blobs, space)]


async def test_a_long_result_costs_the_stream_and_the_model_its_limit(stores: Stores) -> None:
    llm = ScriptedLLM([[Call("read_log", {})], "Done."])
    await AgentExecutor(stores, llm).run(AGENT, "go", session_id="s")
    chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    shown = next(chunk["result"] for chunk in chunks if chunk["type"] == "tool_end")
    sent = llm.requests[1].messages[-1]["content"]
    assert shown == sent
    assert 40_000 < len(sent) < 61_000
    assert sent.startswith("line 0\n")
    assert sent.endswith("line 699999\n")
    (digest,) = await digests(stores, "s")
    assert f"artifact {digest}" in sent
    assert await stores.blobs.get("s", digest) == LONG.encode()


async def test_the_model_reads_the_rest_with_a_tool_that_it_has_only_then(stores: Stores) -> None:
    digest = f"sha256:{hashlib.sha256(LONG.encode()).hexdigest()}"
    script: list[Any] = [
        [Call("read_log", {})],
        [
            Call("read_artifact", {"id": digest, "offset": 7, "length": 6}),
            Call("read_artifact", {"id": digest, "search": "line 69999"}),
            Call("read_artifact", {"id": "sha256:" + "0" * 64}),
            Call("read_artifact", {"id": "nonsense"}),
        ],
        "Done.",
    ]
    llm = ScriptedLLM(script)
    await AgentExecutor(stores, llm).run(AGENT, "go", session_id="s")
    offered = [[spec.name for spec in request.tools] for request in llm.requests]
    assert "read_artifact" not in offered[0]
    assert "read_artifact" in offered[1]
    part, found, missing, nonsense = [m["content"] for m in llm.requests[2].messages if m["role"] == "tool"][1:]
    assert part == "line 1"
    assert found.splitlines()[0] == "70000: line 69999"
    assert "no artifact" in missing
    assert "Invalid digest" in nonsense
    again = ScriptedLLM([*script, "Again."])
    await AgentExecutor(stores, again).run(AGENT, "more", session_id="s")
    assert "read_artifact" in [spec.name for spec in again.requests[0].tools]


async def test_a_tool_has_a_limit_of_its_own_and_json_is_cut_as_text(stores: Stores) -> None:
    llm = ScriptedLLM([[Call("read_table", {})], "Done."])
    await AgentExecutor(stores, llm).run(AGENT, "go", session_id="s")
    sent = llm.requests[1].messages[-1]["content"]
    assert len(sent) < 800
    (digest,) = await digests(stores, "s")
    assert (await stores.blobs.stat("s", [digest]))[digest].media_type == "application/json"


async def test_pictures_are_blobs_in_the_conversation_and_bytes_for_the_model(stores: Stores) -> None:
    llm = ScriptedLLM([[Call("draw", {})], "Done."])
    message = {"role": "user", "content": [{"type": "text", "text": "Like this:"}, dict(Image(PIXELS + b"2"))]}
    await AgentExecutor(stores, llm).run(AGENT, message, session_id="s")
    stored = (await stores.state.get_messages("s", limit=None)).items
    for content in (stored[0]["content"], stored[2]["content"]):
        assert content[1]["blob"].startswith("sha256:")
        assert "data" not in content[1]
    sent = llm.requests[1].messages
    assert base64.b64decode(sent[0]["content"][1]["data"]) == PIXELS + b"2"
    assert base64.b64decode(sent[2]["content"][1]["data"]) == PIXELS
    chunks = [stored.chunk for stored in await stores.streams.get_all_chunks("s")]
    assert "data" not in next(chunk["result"] for chunk in chunks if chunk["type"] == "tool_end")[1]


async def test_data_that_is_not_base64_is_refused_and_stores_nothing(stores: Stores) -> None:
    bad = {"role": "user", "content": [{"type": "image", "media_type": "image/png", "data": "?" * 9_000}]}
    with pytest.raises(ValueError, match="base64"):
        await AgentExecutor(stores, ScriptedLLM(["Never."])).run(AGENT, bad, session_id="s")
    assert await stores.state.load_state("s") is None
    assert await digests(stores, "s") == []


async def test_blobs_are_deleted_with_their_session_and_kept_by_its_fork(stores: Stores) -> None:
    executor = AgentExecutor(stores, ScriptedLLM([[Call("read_log", {})], "Done."]))
    await executor.run(AGENT, "go", session_id="s")
    await executor.fork_session("s", "f")
    (digest,) = await digests(stores, "f")
    assert await executor.delete_session("s")
    assert await digests(stores, "s") == []
    assert await stores.blobs.get("f", digest) == LONG.encode()


async def test_another_users_deletion_leaves_blobs_alone(stores: Stores) -> None:
    executor = AgentExecutor(stores, ScriptedLLM([[Call("read_log", {})], "Done."]))
    await executor.run(AGENT, "go", session_id="s", user_id="ann")
    assert not await executor.delete_session("s", user_id="bob")
    assert len(await digests(stores, "s")) == 1


async def test_a_blob_that_is_gone_is_a_text_for_the_model(stores: Stores) -> None:
    llm = ScriptedLLM([[Call("draw", {})], "Done.", "Again."])
    executor = AgentExecutor(stores, llm)
    await executor.run(AGENT, "go", session_id="s")
    await stores.blobs.delete("s")
    result = await AgentExecutor(stores, llm).run(AGENT, "more", session_id="s")
    assert result.status == "completed"
    assert "blob" in llm.requests[2].messages[2]["content"][1]


async def test_a_fork_adopts_nothing_that_was_left_under_its_id(stores: Stores) -> None:
    executor = AgentExecutor(stores, ScriptedLLM([[Call("read_table", {})], "Done."]))
    await executor.run(AGENT, "go", session_id="old", user_id="ann")
    await executor.run(AGENT, "go", session_id="s", user_id="bob")
    await stores.state.delete_session("old")  # cut off before its stream and usage
    with pytest.raises(SessionExists):
        await executor.fork_session("s", "old")
    assert await stores.state.load_state("old") is None
