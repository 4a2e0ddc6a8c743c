"""A file of users: which files are valid, and that no error shows a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.server.users_file import users_from_file

TOKEN, OTHER = "t" * 32, "o" * 32


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no users"),
        ("[ann]", "User 'ann' in .* has no token"),
        ("[ann]\ntoken = 'short'", "The token of user 'ann' has fewer than"),
        (f"[ann]\ntoken = '{TOKEN}'\n[bob]\ntokens = ['{TOKEN}']", "Users 'ann' and 'bob' .* the same token"),
        (f"[ann]\ntoken = '{TOKEN}'\nadmin = true", "does not list users"),
        (f"[users.ann]\ntoken = '{TOKEN}'", "Write a table for each user"),
        (f"[ann]\ntoken = '{TOKEN}", "is not a TOML file"),
        (f"['{{ann}}']\ntoken = '{TOKEN}'", "must not contain"),
    ],
)
def test_a_file_that_is_not_a_list_of_users_is_rejected(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "users").write_text(text)
    with pytest.raises(InvalidArgument, match=reason) as raised:
        users_from_file(tmp_path / "users")
    assert TOKEN not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="missing"):
        users_from_file(tmp_path / "missing")


def test_a_user_may_have_several_tokens(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"[ann]\ntokens = ['{TOKEN}', '{OTHER}']\nis_admin = true")
    assert callable(users_from_file(tmp_path / "users"))
