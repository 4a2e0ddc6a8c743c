"""The transcript of `helix chat`: text as it comes, calls on a line each, nothing that moves a cursor."""

from __future__ import annotations

import io
from typing import Any

import pytest

from helix_agents.cli.transcript import Transcript, in_full


def printed(*chunks: dict[str, Any], end: tuple[str, str | None] = ("completed", None)) -> str:
    out = io.StringIO()
    transcript = Transcript(out)
    for chunk in chunks:
        transcript.show(chunk)
    transcript.end(*end)
    return out.getvalue()


TEXT = {"type": "text_delta", "delta": "Hi"}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([TEXT, TEXT], "HiHi\n"),
        ([TEXT, {"type": "tool_start", "tool_name": "add", "arguments": {"a": 1}}], 'Hi\n  add {"a":1}\n'),
        ([{"type": "tool_end", "tool_name": "add", "success": True, "result": 2}], "  add -> 2\n"),
        ([{"type": "tool_end", "tool_name": "add", "success": False, "error": "no"}], "  add failed: no\n"),
        ([{**TEXT, "sub_session_id": "child"}], ""),
        ([{"type": "text_delta", "delta": "\x1b[2J"}], "\ufffd[2J\n"),
    ],
)
def test_chunks_are_printed(chunks: list[dict[str, Any]], expected: str) -> None:
    assert printed(*chunks) == expected


def test_an_end_that_is_not_obvious_is_said() -> None:
    assert printed(TEXT, end=("failed", "no\nmodel")) == "Hi\n(failed: no\\nmodel)\n"
    assert printed(end=("interrupted", None)) == "(stopped; send a message to continue)\n"


def test_what_a_person_approves_shows_every_character() -> None:
    assert in_full({"a": "x\u202ey"}) == '{\n  "a": "x\\u202ey"\n}'
