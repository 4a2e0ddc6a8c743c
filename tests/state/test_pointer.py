"""JSON pointers: paths to strings, and strings to tokens."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import PatchError
from helix_agents.state.pointer import to_pointer, to_tokens

PAIRS: list[tuple[list[str | int], str]] = [
    ([], ""),
    ([""], "/"),
    (["a", "b"], "/a/b"),
    (["a", 0], "/a/0"),
    (["a/b", "m~n"], "/a~1b/m~0n"),
    (["~1"], "/~01"),
]


@pytest.mark.parametrize(("path", "pointer"), PAIRS)
def test_a_path_and_its_pointer_convert_to_each_other(path: list[str | int], pointer: str) -> None:
    assert to_pointer(path) == pointer
    assert to_tokens(pointer) == [str(token) for token in path]


@pytest.mark.parametrize(("pointer", "reason"), [("a", "start with"), ("/~2", "'~'"), ("/a~", "'~'"), (7, "not int")])
def test_a_string_that_is_not_a_pointer_is_rejected(pointer: Any, reason: str) -> None:
    with pytest.raises(PatchError, match=reason):
        to_tokens(pointer)
