"""What `helix tail` prints."""

from __future__ import annotations

import io
import json
from typing import Any

from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.cli.tail import tail

CHUNKS: list[dict[str, Any]] = [
    {"type": "run_started"},
    {"type": "thinking", "content": "hm", "is_complete": False},
    {"type": "text_delta", "delta": "Hel"},
    {"type": "text_delta", "delta": "lo\x1b[31m"},
    {"type": "tool_start", "tool_call_id": "1", "tool_name": "search", "arguments": {"q": "x" * 300}},
    {"type": "tool_end", "tool_call_id": "1", "tool_name": "search", "result": "found", "success": True, "error": None},
    {"type": "tool_end", "tool_call_id": "2", "tool_name": "fetch", "result": None, "success": False, "error": "no"},
    {"type": "state_patch", "patches": [{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}]},
    {"type": "custom", "name": "progress", "data": 5},
    {"type": "step_committed", "checkpoint_id": "c", "step_count": 1},
]


async def _stream(chunks: list[dict[str, Any]], **options: Any) -> InMemoryStreamManager:
    manager = InMemoryStreamManager(**options)
    async with await manager.create_writer("s", "run", "agent") as writer:
        for chunk in chunks:
            await writer.write(chunk)
    return manager


async def _tail(manager: InMemoryStreamManager, **options: Any) -> tuple[int, str]:
    out = io.StringIO()
    return await tail(manager, "s", out=out, **options), out.getvalue()


async def test_people_read_prose() -> None:
    manager = await _stream(CHUNKS)
    await manager.end_stream("s", {"answer": 42})
    code, text = await _tail(manager)
    lines = text.splitlines()
    assert code == 0
    assert lines[:3] == ["[1] run_started", "(thinking) hm", "Hello\ufffd[31m"]
    assert lines[3].startswith('[5] search({"q":"xxx')
    assert lines[3].endswith("characters))")
    assert lines[4:] == [
        "[6] search -> found",
        "[7] fetch failed: no",
        "[8] state: add /a = 1; remove /b",
        "[9] progress: 5",
        "[10] step 1 committed",
        '-- ended: {"answer":42}',
    ]


async def test_programs_read_json_lines() -> None:
    manager = await _stream(CHUNKS)
    await manager.end_stream("s", {"answer": 42})
    code, text = await _tail(manager, as_json=True, from_sequence=8)
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [line["sequence"] for line in lines[:-1]] == [9, 10]
    assert lines[0]["chunk"]["data"] == 5
    assert lines[-1] == {"outcome": "ended", "final_output": {"answer": 42}, "error": None}


async def test_a_missing_stream_is_said_and_told_by_the_exit_code() -> None:
    assert await _tail(InMemoryStreamManager()) == (1, "-- missing: There is no stream 's'.\n")


async def test_a_failed_stream_shows_its_history_and_its_error() -> None:
    manager = await _stream(CHUNKS[2:3])
    await manager.fail_stream("s", "boom")
    assert await _tail(manager) == (2, "Hel\n-- failed: boom\n")


async def test_without_a_cursor_it_begins_at_the_first_kept_chunk() -> None:
    manager = await _stream(CHUNKS, max_chunks=2)
    await manager.end_stream("s")
    assert await _tail(manager) == (0, "[9] progress: 5\n[10] step 1 committed\n-- ended\n")


async def test_a_cursor_that_is_too_old_is_refused_with_the_first_kept_one() -> None:
    manager = await _stream(CHUNKS, max_chunks=2)
    code, text = await _tail(manager, from_sequence=3, as_json=True)
    assert code == 3
    assert json.loads(text)["first_sequence"] == 9
