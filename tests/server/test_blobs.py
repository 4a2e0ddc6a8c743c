"""Uploads and downloads: the session's access rule, ranges, and nothing that a browser would run."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest

from helix_agents.backends.registry import Stores
from tests.server.clients import agui_input, chat_request, events_of, user_says
from tests.server.running import result
from tests.server.test_problems import assert_problem

DATA = bytes(range(256)) * 4


@pytest.fixture
async def session(alice: httpx.AsyncClient, sid: str) -> str:
    await alice.post("/execute", json={"agent_type": "manager", "message": "Hi", "session_id": sid})
    return sid


async def upload(client: httpx.AsyncClient, session_id: str, media_type: str = "image/png") -> httpx.Response:
    return await client.post(f"/sessions/{session_id}/blobs", content=DATA, headers={"content-type": media_type})


async def test_an_upload_can_be_downloaded_whole_and_by_range(alice: httpx.AsyncClient, session: str) -> None:
    stored = await upload(alice, session)
    digest = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    assert (stored.status_code, stored.json()) == (201, {"blob": digest, "media_type": "image/png", "size": 1024})
    whole = await alice.get(f"/sessions/{session}/blobs/{digest}")
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, DATA, "image/png")
    assert whole.headers["content-disposition"] == "inline"
    part = await alice.get(f"/sessions/{session}/blobs/{digest}", headers={"range": "bytes=1000-"})
    assert (part.status_code, part.content) == (206, DATA[1000:])
    assert part.headers["content-range"] == "bytes 1000-1023/1024"
    beyond = await alice.get(f"/sessions/{session}/blobs/{digest}", headers={"range": "bytes=1024-"})
    assert_problem(beyond, 416, "range_not_satisfiable")


@pytest.mark.parametrize("form", ["ai-sdk", "ag-ui"])
async def test_a_conversation_with_a_blob_is_continued_by_a_client_that_loaded_it(
    alice: httpx.AsyncClient, session: str, form: str
) -> None:
    await result(alice, session)
    digest = (await upload(alice, session)).json()["blob"]
    message = {"role": "user", "content": [{"type": "image", "media_type": "image/png", "blob": digest}]}
    await alice.post("/execute", json={"agent_type": "manager", "message": [message], "session_id": session})
    await result(alice, session)
    shown = (await alice.get(f"/sessions/{session}/messages?format={form}")).json()["messages"]
    if form == "ag-ui":
        body = agui_input(session, "1", messages=[*shown, {"id": "new", "role": "user", "content": "and now?"}])
        await events_of(alice, "POST", "/agui/manager", json=body)
    else:
        await events_of(alice, "POST", "/chat/manager", json=chat_request(session, *shown, user_says("and now?")))
    stored = (await alice.get(f"/sessions/{session}/messages")).json()["items"]
    assert [each["content"] for each in stored if each["role"] == "user"] == ["Hi", message["content"], "and now?"]


async def test_what_may_hold_scripts_is_a_download(alice: httpx.AsyncClient, session: str) -> None:
    digest = (await upload(alice, session, "text/html")).json()["blob"]
    page = await alice.get(f"/sessions/{session}/blobs/{digest}")
    assert page.headers["content-disposition"] == "attachment"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in page.headers["content-security-policy"]


async def test_another_user_finds_no_session(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, session: str, stores: Stores
) -> None:
    digest = (await upload(alice, session)).json()["blob"]
    assert_problem(await upload(bob, session), 404, "session_not_found")
    assert_problem(await bob.get(f"/sessions/{session}/blobs/{digest}"), 404, "session_not_found")
    assert len((await stores.blobs.list(session)).items) == 1


async def test_a_digest_of_another_session_is_not_found(alice: httpx.AsyncClient, session: str) -> None:
    digest = (await upload(alice, session)).json()["blob"]
    await alice.post("/execute", json={"agent_type": "manager", "message": "Hi", "session_id": f"{session}-2"})
    assert_problem(await alice.get(f"/sessions/{session}-2/blobs/{digest}"), 404, "not_found")
    assert_problem(await alice.get(f"/sessions/{session}/blobs/nonsense"), 400, "invalid_argument")


@pytest.mark.parametrize("headers", [{"Content-Length": "100000000"}, {}], ids=["declared", "chunked"])
async def test_a_hundred_megabytes_are_rejected_and_leave_nothing(
    alice: httpx.AsyncClient, stores: Stores, session: str, headers: dict[str, str]
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 1_000_000

    with suppress(httpx.WriteError, httpx.ReadError):  # a server may close the connection before it has read everything
        response = await alice.post(f"/sessions/{session}/blobs", content=pieces(), headers=headers)
        assert_problem(response, 413, "body_too_large")
    assert stores.blobs is not None
    assert (await stores.blobs.list(session)).items == []


async def test_an_upload_that_is_too_large_is_refused_early(alice: httpx.AsyncClient, session: str) -> None:
    huge = await alice.post(f"/sessions/{session}/blobs", content=b"x" * 25_000_001)
    assert_problem(huge, 413, "body_too_large")
