"""The editor: a container is copied once, and everything beside the path is shared."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.state import FrozenDict, freeze
from helix_agents.state.editor import Editor, Misfit, put, remove


def test_an_edit_copies_the_path_once_and_shares_the_rest() -> None:
    base = freeze({"a": {"b": [1]}, "c": {"d": 1}})
    editor = Editor(base)
    first = editor.container(["a", "b"])
    put(first, 0, 2)
    assert editor.container(["a", "b"]) is first
    assert editor.root == {"a": {"b": [2]}, "c": {"d": 1}}
    assert editor.root["c"] is base["c"]
    assert base == {"a": {"b": [1]}, "c": {"d": 1}}
    assert type(editor.root["a"]) is FrozenDict


def test_after_share_a_container_is_copied_again() -> None:
    editor = Editor({"a": {}})
    first = editor.container(["a"])
    editor.share()
    assert editor.container(["a"]) is not first


def test_members_and_items_are_removed() -> None:
    editor = Editor({"a": [1, 2], "b": 1})
    remove(editor.container(["a"]), 0)
    remove(editor.container([]), "b")
    assert editor.root == {"a": [2]}


@pytest.mark.parametrize(
    ("path", "reason"),
    [(["x"], "no member 'x'"), (["l", 1], "no item 1"), (["l", "0"], "no item '0'"), (["n", "x"], "int has no 'x'")],
)
def test_a_path_that_does_not_exist_is_a_misfit(path: Any, reason: str) -> None:
    with pytest.raises(Misfit, match=reason):
        Editor({"l": [1], "n": 1}).find(path)
