"""Sessions over HTTP: lists, one session and its parts, snapshots, forks, restores."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from helix_agents.backends.registry import Stores
from helix_agents.state import apply_patch
from tests.server.agents import SIGNATURE
from tests.server.running import chunks, execute, read_stream, result, streaming


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_session_is_given_with_its_state_and_its_run(alice: httpx.AsyncClient, sid: str) -> None:
    begun = await execute(alice, "search ants", sid, tags=["t"], metadata={"title": "Ants"}, expires_at=4102444800000)
    await result(alice, sid)
    session = await get(alice, f"/sessions/{sid}")
    assert session["current_run"]["run_id"] == begun["run_id"]
    assert session["custom_state"] == {"searches": ["ants"]}
    assert (session["user_id"], session["tags"], session["metadata"]) == ("alice", ["t"], {"title": "Ants"})
    assert session["expires_at"] == 4102444800000
    assert await get(alice, f"/sessions/{sid}/state") == {
        "custom_state": session["custom_state"],
        "version": session["version"],
    }
    runs = await get(alice, f"/sessions/{sid}/runs")
    assert [run["run_id"] for run in runs["items"]] == [begun["run_id"]]


async def test_what_belongs_to_the_provider_is_not_sent_to_clients(
    alice: httpx.AsyncClient, stores: Stores, sid: str
) -> None:
    await execute(alice, "search ants", sid)
    await result(alice, sid)
    assert SIGNATURE in str((await stores.state.get_messages(sid)).items)
    parts = ["", "/messages", "/snapshot", "/runs", "/checkpoints"]
    formats = [f"/stream/{sid}{query}" for query in ("", "?format=ag-ui", "?format=ai-sdk")]
    for path in [*(f"/sessions/{sid}{part}" for part in parts), *formats]:
        response = await alice.get(path)
        assert response.status_code == 200
        assert "native" not in response.text, path


async def test_lists_can_be_filtered_counted_and_walked(alice: httpx.AsyncClient, sid: str) -> None:
    ids = [f"{sid}-{number}" for number in range(5)]
    for each in ids:
        await execute(alice, "hello", each, tags=["walk", sid])
        await result(alice, each)
    walked: list[str] = []
    cursor = None
    while True:
        query = {"tag": ["walk", sid], "limit": 2, "status": ["completed", "failed"]}
        page = await get(alice, "/sessions", **query, **({"cursor": cursor} if cursor else {}))
        walked += [item["session_id"] for item in page["items"]]
        assert all("custom_state" not in item for item in page["items"])
        assert "total" not in page
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert walked == ids[::-1]
    assert (await get(alice, "/sessions", tag=sid, count=True, limit=1))["total"] == 5
    assert (await get(alice, "/sessions", tag=sid, status="failed"))["items"] == []
    assert (await get(alice, "/sessions", tag=sid, agent_type="nobody"))["items"] == []
    spent = (await get(alice, "/sessions", q=ids[0], include="usage"))["items"]
    assert spent[0]["usage"]["tokens"]["total"] > 0


async def test_sessions_are_found_by_the_beginning_of_their_ids_and_the_other_filters(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, sid: str
) -> None:
    for number in range(3):
        await execute(alice, "hello", f"{sid}-{number}", tags=[str(number)])
        await result(alice, f"{sid}-{number}")

    async def ids(client: httpx.AsyncClient, **query: Any) -> list[str]:
        return [item["session_id"] for item in (await get(client, "/sessions", **query))["items"]]

    assert await ids(alice, q=f"{sid}-") == [f"{sid}-2", f"{sid}-1", f"{sid}-0"]
    assert await ids(alice, q=f"{sid}-1") == [f"{sid}-1"]
    assert await ids(alice, q=f"{sid}-", tag="1") == [f"{sid}-1"]
    assert await ids(alice, q=f"{sid}-1", status="failed") == []
    assert await ids(alice, q=f"{sid}-1", agent_type="assistant") == []
    assert await ids(alice, q=f"{sid}-1", parent_session_id="another") == []
    assert await ids(bob, q=sid) == []
    page = await get(alice, "/sessions", q=sid, limit=2, count=True)
    assert (len(page["items"]), page["has_more"], page["total"]) == (2, True, 3)


async def test_roots_can_be_told_from_children(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "tell hello", sid, tags=[sid])
    await result(alice, sid)
    assert len((await get(alice, "/sessions", tag=sid))["items"]) == 2
    roots = await get(alice, "/sessions", tag=sid, parent_session_id="")
    assert [item["session_id"] for item in roots["items"]] == [sid]
    below = (await get(alice, "/sessions", parent_session_id=sid))["items"]
    refs = (await get(alice, f"/sessions/{sid}/children"))["items"]
    assert [item["session_id"] for item in below] == [ref["sub_session_id"] for ref in refs]


async def test_messages_come_in_pages(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "search ants", sid)
    await result(alice, sid)
    whole = await get(alice, f"/sessions/{sid}/messages")
    assert [message["role"] for message in whole["items"]] == ["user", "assistant", "tool", "assistant"]
    part = await get(alice, f"/sessions/{sid}/messages", offset=1, limit=2)
    assert part["items"] == whole["items"][1:3]
    assert (part["total"], part["has_more"]) == (4, True)
    assert (await get(alice, f"/sessions/{sid}/messages", offset=-1))["items"] == whole["items"][-1:]
    for many in (1, 100):
        snapshot = await get(alice, f"/sessions/{sid}/snapshot", offset=-many)
        assert (snapshot["messages"], snapshot["message_count"]) == (whole["items"][-many:], len(whole["items"]))


async def test_usage_holds_sub_sessions_unless_told_otherwise(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "tell search ants", sid)
    await result(alice, sid)
    tree = await get(alice, f"/sessions/{sid}/usage")
    alone = await get(alice, f"/sessions/{sid}/usage", tree=False)
    assert tree["tokens"]["total"] > alone["tokens"]["total"] > 0
    assert tree["tools"]["search"]["calls"] == 1
    assert "search" not in alone["tools"]


async def test_checkpoints_can_be_listed_got_forked_and_gone_back_to(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "search ants", sid)
    await result(alice, sid)
    listed = (await get(alice, f"/sessions/{sid}/checkpoints"))["items"]
    first = next(point for point in reversed(listed) if point["step_count"] == 1)
    point = await get(alice, f"/sessions/{sid}/checkpoints/{first['checkpoint_id']}")
    assert point["state"]["custom_state"] == {"searches": ["ants"]}
    forked = await alice.post(f"/sessions/{sid}/fork", json={"checkpoint_id": first["checkpoint_id"]})
    assert forked.status_code == 201
    copy = forked.json()
    assert (copy["step_count"], copy["user_id"]) == (1, "alice")
    assert (await get(alice, f"/sessions/{copy['session_id']}/messages"))["total"] == point["message_count"]
    restored = await alice.post(f"/sessions/{sid}/restore", json={"checkpoint_id": first["checkpoint_id"]})
    assert restored.status_code == 200, restored.text
    assert restored.json()["step_count"] == 1
    assert (await get(alice, f"/sessions/{sid}/messages"))["total"] == point["message_count"]
    await alice.delete(f"/sessions/{sid}")


async def test_the_end_of_a_waiting_session_leaves_its_open_step_to_the_stream(
    alice: httpx.AsyncClient, sid: str
) -> None:
    await execute(alice, "delete notes.txt", sid)
    await result(alice, sid)
    for offset in (0, -1, -2, -200):
        view = await get(alice, f"/sessions/{sid}/snapshot", offset=offset)
        roles = [message["role"] for message in view["messages"]]
        assert (roles, view["message_count"]) == ([] if offset == -1 else ["user"], 1), offset


async def test_a_snapshot_and_the_stream_after_it_miss_and_double_nothing(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "talk 40", sid)
    await execute_when_free(alice, "search ants", sid)
    for _ in range(30):
        view = await get(alice, f"/sessions/{sid}/snapshot")
        async with streaming(alice, f"/stream/{sid}?from_sequence={view['sequence']}") as frames:
            after = chunks([frame async for frame in frames])
        said = [message.get("content", "") for message in view["messages"] if message["role"] == "assistant"]
        told = [message["content"] for message in (await get(alice, f"/sessions/{sid}/messages"))["items"]]
        shown: dict[int, str] = {}
        for frame in after:
            if frame.data["type"] == "text_delta":
                shown[frame.data["step"]] = shown.get(frame.data["step"], "") + frame.data["delta"]
        every = [*said, *(shown[step] for step in sorted(shown))]
        assert every == [text for text in told if text in every]
        assert all(step > view["session"]["step_count"] for step in shown)
        state = view["session"]["custom_state"]
        for frame in after:
            if frame.data["type"] == "state_patch":
                state = apply_patch(state, frame.data["patches"])
        assert state == (await get(alice, f"/sessions/{sid}/state"))["custom_state"]
        if view["session"]["status"] == "completed":
            break
    assert view["session"]["status"] == "completed"


async def execute_when_free(client: httpx.AsyncClient, message: str, session_id: str) -> None:
    await result(client, session_id)
    await execute(client, message, session_id)


async def test_agents_are_listed_with_their_tools(alice: httpx.AsyncClient) -> None:
    items = {item["name"]: item for item in (await get(alice, "/agents"))["items"]}
    tools = {tool["name"]: tool for tool in items["manager"]["tools"]}
    assert tools["delete_file"]["requires_approval"] is True
    assert tools["ask_user"]["execute"] == "client"
    assert tools["search"]["input_schema"]["properties"]["query"] == {"type": "string"}
    assert items["researcher"]["output_schema"]["required"]


async def test_deleting_takes_the_whole_tree(alice: httpx.AsyncClient, stores: Stores, sid: str) -> None:
    await execute(alice, "tell hello", sid)
    await result(alice, sid)
    child = (await get(alice, f"/sessions/{sid}/children"))["items"][0]["sub_session_id"]
    assert (await alice.delete(f"/sessions/{sid}")).status_code == 204
    assert (await alice.delete(f"/sessions/{sid}")).status_code == 404
    assert await stores.state.load_state(child) is None
    assert await stores.streams.get_stream_info(sid) is None


async def test_many_requests_at_once_start_one_run(alice: httpx.AsyncClient, sid: str) -> None:
    body = {"agent_type": "manager", "message": "nap 0.2", "session_id": sid}
    answers = await asyncio.gather(*(alice.post("/execute", json=body) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 9
    assert (await result(alice, sid))["status"] == "completed"
    assert len(chunks(await read_stream(alice, f"/stream/{sid}"))) > 0


# -- changes


async def test_title_tags_and_metadata_can_be_changed(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "hello", sid, tags=["old"], metadata={"a": "1", "b": "2"})
    before = await result(alice, sid)
    body = {"title": "Ants", "tags": ["new", "more"], "metadata": {"b": "3", "a": None, "c": "4"}}
    changed = await alice.patch(f"/sessions/{sid}", json=body)
    assert changed.status_code == 200, changed.text
    assert changed.json()["metadata"] == {"title": "Ants", "b": "3", "c": "4"}
    assert changed.json()["tags"] == ["new", "more"]
    stored = (await alice.get(f"/sessions/{sid}")).json()
    assert (stored["metadata"], stored["tags"]) == (changed.json()["metadata"], changed.json()["tags"])
    assert (await alice.patch(f"/sessions/{sid}", json={"title": None})).json()["metadata"] == {"b": "3", "c": "4"}
    assert (await alice.patch(f"/sessions/{sid}", json={})).json()["tags"] == ["new", "more"]
    assert await result(alice, sid) == before


async def test_a_running_session_can_be_renamed(alice: httpx.AsyncClient, sid: str) -> None:
    await execute(alice, "nap 0.3", sid)
    for number in range(5):
        assert (await alice.patch(f"/sessions/{sid}", json={"title": f"Title {number}"})).status_code == 200
    assert (await result(alice, sid))["status"] == "completed"
    assert (await alice.get(f"/sessions/{sid}")).json()["metadata"]["title"] == "Title 4"


@pytest.mark.parametrize(
    "body",
    [{"title": 7}, {"tags": "red"}, {"tags": [""]}, {"tags": None}, {"metadata": {"a": 1}}, {"user_id": "bob"}, []],
    ids=str,
)
async def test_a_bad_change_is_rejected(alice: httpx.AsyncClient, sid: str, body: Any) -> None:
    await execute(alice, "hello", sid)
    await result(alice, sid)
    before = (await alice.get(f"/sessions/{sid}")).json()
    response = await alice.patch(f"/sessions/{sid}", json=body)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
    assert (await alice.get(f"/sessions/{sid}")).json() == before
