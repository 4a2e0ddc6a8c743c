"""Freezing: a snapshot of any JSON value, detached from it."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import NotSerializable
from helix_agents.state import freeze


def test_freezing_detaches_from_the_original() -> None:
    mine = {"l": [1]}
    frozen = freeze(mine)
    mine["l"].append(2)
    assert frozen == {"l": [1]}
    assert freeze(frozen) is frozen


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": {1}}, "/a: set"),
        ({"a": [0, object()]}, "/a/1: object"),
        ({"a": float("nan")}, "/a: nan"),
        ({"a": {5: 1}}, "/a: object key 5"),
    ],
)
def test_what_is_not_json_is_named_with_its_pointer(value: Any, pointer: str) -> None:
    with pytest.raises(NotSerializable, match=pointer):
        freeze(value)
