"""Output of commands: lines for people, JSON for programs."""

from __future__ import annotations

import json

import pytest

from helix_agents.cli.output import emit, say_document, session_line, when
from helix_agents.types import SessionState


def test_times_are_shown_in_utc() -> None:
    assert when(1_700_000_000_999) == "2023-11-14 22:13:20"


def test_a_session_is_one_line() -> None:
    session = SessionState("s", "a", status="paused", step_count=2, version=3)
    assert session_line(session) == "1970-01-01 00:00:00  paused       s  a  step 2, version 3"


def test_programs_get_one_document_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit(SessionState("s", "a", metadata={"k": "two\nlines"}))
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["metadata"] == {"k": "two\nlines"}


def test_a_document_lists_items_and_fields_that_say_something(capsys: pytest.CaptureFixture[str]) -> None:
    say_document({"Session": {"id": "s", "user": None, "tags": [], "n": 0}, "Notes": ["one", {"a": 1}]})
    assert capsys.readouterr().out == '\nSession\n  id: "s"\n  n: 0\n\nNotes\n  one\n  {"a":1}\n'
