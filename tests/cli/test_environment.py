"""Variables from a file `.env`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helix_agents.cli.environment import load_env


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("HELIX_TEST=a b", "a b"),
        ("export HELIX_TEST = a", "a"),
        ('HELIX_TEST="a # b"  # comment', "a # b"),
        ("HELIX_TEST='a'", "a"),
        ("HELIX_TEST=a # comment", "a"),
        ("HELIX_TEST=", ""),
        ("# HELIX_TEST=a", None),
        ("not a variable", None),
    ],
)
def test_a_line_sets_a_variable(line: str, value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIX_TEST", "")
    del os.environ["HELIX_TEST"]
    (tmp_path / ".env").write_text(line)
    load_env(tmp_path / ".env")
    assert os.environ.get("HELIX_TEST") == value


def test_a_variable_that_is_set_wins_and_a_missing_file_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIX_TEST", "mine")
    (tmp_path / ".env").write_text("HELIX_TEST=theirs")
    load_env(tmp_path / ".env")
    load_env(tmp_path / "missing")
    assert os.environ["HELIX_TEST"] == "mine"
