"""Diff: the patch from one document to another is small and strictly valid."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.state import apply_patch, diff

CASES: list[tuple[Any, Any, list[dict[str, Any]]]] = [
    ({"a": 1}, {"a": 1}, []),
    ({"a": 1}, {"a": 1.0}, [{"op": "replace", "path": "/a", "value": 1.0}]),
    ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
    ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
    ({}, {"a/b": 1}, [{"op": "add", "path": "/a~1b", "value": 1}]),
    ([1, 2], [1, 2, 3], [{"op": "add", "path": "/-", "value": 3}]),
    ([1, 3], [1, 2, 3], [{"op": "add", "path": "/1", "value": 2}]),
    ([1, 2, 3], [1, 3], [{"op": "remove", "path": "/1"}]),
    ([1, 2, 3], [], [{"op": "replace", "path": "", "value": []}]),
    ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [{"op": "replace", "path": "/a/0/b", "value": 2}]),
    ({"a": []}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
]


@pytest.mark.parametrize(("before", "after", "patch"), CASES)
def test_the_patch_leads_from_one_document_to_the_other(before: Any, after: Any, patch: Any) -> None:
    assert diff(before, after) == patch
    assert apply_patch(before, patch) == after
