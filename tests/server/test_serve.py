"""The life of a server process: a graceful stop, a kill, another process that continues, two on one backend."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx

from helix_agents.backends.registry import open_stores
from tests.server.running import (
    LAST_WORDS,
    Running,
    Seen,
    chunks,
    execute,
    read_stream,
    result,
    running,
    streaming,
    text_of,
)


async def test_a_graceful_stop_cuts_streams_cleanly_and_another_process_goes_on(tmp_path: Path, sid: str) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    with running(url, tmp_path, 0.01) as first:
        async with first.client() as alice:
            begun = await execute(alice, "talk 120", sid)
            async with streaming(alice, begun["stream_url"]) as frames:
                seen = [await anext(frames) for _ in range(5)]
                first.process.send_signal(signal.SIGTERM)
                seen += [frame async for frame in frames]  # a protocol error here would be a dirty cut
        assert first.stop() == 0
        assert seen[-1].event not in LAST_WORDS
    with running(url, tmp_path, 0) as second:
        async with second.client() as alice:
            rest = await read_stream(alice, f"/stream/{sid}", headers={"Last-Event-ID": str(seen[-1].id)})
            assert rest[-1].event == "end"
            assert rest[-1].data["output"] == " ".join(f"word{number}" for number in range(120))


async def test_after_a_kill_the_client_gets_everything_once(tmp_path: Path, sid: str) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    seen: list[Seen] = []
    with running(url, tmp_path, 0.005) as first:
        async with first.client() as alice:
            begun = await execute(alice, "talk 200", sid)
            try:
                async with streaming(alice, begun["stream_url"]) as frames:
                    async for frame in frames:
                        seen.append(frame)
                        if len(seen) == 20:
                            first.stop(signal.SIGKILL)
            except httpx.HTTPError:
                pass  # the connection broke with the process
    with running(url, tmp_path) as second:
        async with second.client() as alice:
            seen += await read_stream(alice, f"/stream/{sid}", headers={"Last-Event-ID": str(chunks(seen)[-1].id)})
    numbers = [frame.id or 0 for frame in chunks(seen)]
    assert numbers == sorted(set(numbers))
    whole = " ".join(f"word{number}" for number in range(200))
    assert seen[-1].data["output"] == whole
    marker = max(
        place for place, frame in enumerate(seen) if frame.event == "chunk" and "rewound" in frame.data["type"]
    )
    assert text_of(seen[marker:]) == whole


async def test_two_servers_share_one_backend(tmp_path: Path, sid: str) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    with running(url, tmp_path) as one, running(url, tmp_path) as other:
        async with one.client() as here, other.client() as there:
            await execute(here, "delete a.txt", sid)
            stream = asyncio.create_task(read_stream(there, f"/stream/{sid}"))
            wait = (await result(there, sid))["suspended"][0]
            assert (await stream)[-1].event == "pause"
            body = {"tool_call_id": wait["tool_call_id"], "approved": True}
            receipt = (await there.post(f"/sessions/{sid}/tool-results", json=body)).json()
            assert receipt["run_id"]
            assert (await result(here, sid))["status"] == "completed"
            assert (await read_stream(here, f"/stream/{sid}"))[-1].event == "end"


async def test_a_run_whose_process_died_is_taken_up_once(tmp_path: Path, sid: str) -> None:
    url = f"sqlite:{tmp_path / 'h.db'}"
    with running(url, tmp_path) as first:
        async with first.client() as alice:
            await execute(alice, "nap 1", sid)
        first.stop(signal.SIGKILL)
    with running(url, tmp_path) as one, running(url, tmp_path) as other:
        async with one.client() as here, other.client() as there:
            answers = await asyncio.gather(result(here, sid), result(there, sid))
    assert {answer["status"] for answer in answers} == {"completed"}
    async with open_stores(url) as stores:
        runs = await stores.state.list_runs(sid)
    assert [run.status for run in runs] == ["interrupted", "completed"]


def test_the_log_holds_no_token(server: Running) -> None:
    assert "-token" not in server.log.read_text()
