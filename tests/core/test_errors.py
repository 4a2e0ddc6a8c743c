"""Errors: values in messages are short and safe, and errors carry the objects they concern."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from helix_agents import errors


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", "'a'"), (7, "7"), (Broken(), "<Broken instance at"), ({"a": [1]}, "{'a': [1]}")],
)
def test_a_value_is_shown_by_its_repr(value: Any, expected: str) -> None:
    assert errors.shown(value).startswith(expected)


@pytest.mark.parametrize(
    "value", ["x" * 10_000, 10**10_000, [["x" * 1000] * 1000] * 1000], ids=["string", "integer", "list"]
)
def test_a_huge_value_is_cut(value: Any) -> None:
    assert len(errors.shown(value)) < 5000


def test_every_error_is_in_the_tree_of_the_module_docstring() -> None:
    classes = {
        name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.HelixError)
    }
    drawn = set(re.findall(r"^[ │├└─]*([A-Z]\w+)", (errors.__doc__ or "").split("Messages say")[0], re.MULTILINE))
    assert classes == drawn - {"Every"}


def test_errors_keep_what_they_are_about() -> None:
    missing = errors.SessionNotFound("a1")
    assert missing.session_id == "a1"
    assert "'a1'" in str(missing)
    wrong = errors.NotSerializable("/a/0", "set")
    assert (wrong.path, wrong.type_name, str(wrong)) == ("/a/0", "set", "/a/0: set is not JSON")
    assert isinstance(wrong, ValueError)
