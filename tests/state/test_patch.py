"""JSON Patch and JSON Pointer: the rules of RFC 6901 and RFC 6902, and patches that must not apply."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_agents.errors import PatchError
from helix_agents.state import StateTracker, apply_patch, diff, freeze, to_pointer

from .programs import modest, text, values

APPENDIX_A: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    ({"baz": [1]}, [{"op": "test", "path": "/baz/0", "value": 1}], {"baz": [1]}),
    ({"baz": [1]}, [{"op": "test", "path": "/baz", "value": [1.0]}], {"baz": [1]}),
    ({"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"g": {}}}], {"foo": "bar", "child": {"g": {}}}),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}], {"foo": "bar", "baz": "qux"}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"a": 1}, [{"op": "add", "path": "", "value": [1]}], [1]),
    ({"a": 1}, [{"op": "replace", "path": "", "value": "x"}], "x"),
    ("x", [{"op": "test", "path": "", "value": "x"}], "x"),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"": {"": 1}}, [{"op": "replace", "path": "//", "value": 2}], {"": {"": 2}}),
    ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    ({"0": 1}, [{"op": "remove", "path": "/0"}], {}),
    ([1, 2], [{"op": "add", "path": "/2", "value": 3}], [1, 2, 3]),
]


@pytest.mark.parametrize(("document", "patch", "expected"), APPENDIX_A)
def test_patches_of_the_standard(document: Any, patch: Any, expected: Any) -> None:
    before = text(document)
    assert text(apply_patch(document, patch)) == text(expected)
    assert text(apply_patch(freeze(document), patch)) == text(expected)
    assert text(document) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/s", "value": "other"},
        {"op": "test", "path": "/t", "value": 1},
        {"op": "test", "path": "/missing", "value": None},
        {"op": "add", "path": "/missing/x", "value": 1},
        {"op": "add", "path": "/l/4", "value": 1},
        {"op": "add", "path": "/l/01", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "/l/-1", "value": 1},
        {"op": "add", "path": "/l/٢", "value": 1},
        {"op": "add", "path": "/s/x", "value": 1},
        {"op": "add", "path": "s", "value": 1},
        {"op": "add", "path": "/~2", "value": 1},
        {"op": "add", "path": "/a~", "value": 1},
        {"op": "add", "path": 5, "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "add", "value": 1},
        {"op": "add", "path": "/x", "value": {1}},
        {"op": "remove", "path": "/l/-"},
        {"op": "remove", "path": "/l/3"},
        {"op": "remove", "path": "/missing"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "replace", "path": "/l/-", "value": 1},
        {"op": "move", "path": "/x"},
        {"op": "move", "from": "/missing", "path": "/x"},
        {"op": "move", "from": "/o", "path": "/o/in/x"},
        {"op": "copy", "from": "/l/3", "path": "/x"},
        {"op": "explode", "path": "/x"},
        {"op": ["add"], "path": "/x"},
        {"path": "/x", "value": 1},
        "add",
    ],
)
def test_a_bad_operation_raises_and_changes_nothing(operation: Any) -> None:
    document = {"s": "a", "t": True, "l": [1, 2], "o": {"in": {}}}
    before = text(document)
    with pytest.raises(PatchError, match="Operation 1"):
        apply_patch(document, [{"op": "add", "path": "/l/-", "value": 3}, operation])
    assert text(document) == before


@pytest.mark.parametrize("patch", [None, {}, "x", 5])
def test_a_patch_is_a_list(patch: Any) -> None:
    with pytest.raises(PatchError):
        apply_patch({}, patch)


def test_a_copied_value_and_its_original_go_separate_ways() -> None:
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": "/a/n", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/n", "value": 2},
        {"op": "move", "from": "/b", "path": "/c"},
        {"op": "add", "path": "/c/m", "value": 3},
    ]
    plain: dict[str, Any] = {"a": {}}
    for document in (plain, freeze(plain)):
        assert apply_patch(document, patch) == {"a": {"n": 2}, "c": {"n": 1, "m": 3}}


def test_what_a_patch_does_not_touch_is_shared() -> None:
    document = {"big": [1], "n": 0}
    assert apply_patch(document, [{"op": "replace", "path": "/n", "value": 1}])["big"] is document["big"]


@modest
@given(st.lists(st.text(alphabet="~/01a-\x00é\ud800 ", max_size=4), min_size=1, max_size=4), values)
def test_any_key_survives_the_way_through_a_pointer(keys: list[str], value: Any) -> None:
    base: dict[str, Any] = {}
    inner = base
    for key in keys[:-1]:
        inner[key] = {}
        inner = inner[key]

    def change(draft: Any) -> None:
        for key in keys[:-1]:
            draft = draft[key]
        draft[keys[-1]] = value

    tracker = StateTracker(base)
    tracker.update(change)
    patches = json.loads(json.dumps(tracker.get_rfc6902_patches()))
    assert [patch["path"] for patch in patches] == [to_pointer(keys)]
    assert text(apply_patch(base, patches)) == text(tracker.state)
    assert text(jsonpatch.apply_patch(base, patches)) == text(tracker.state)


def test_pointers_escape_tilde_before_slash() -> None:
    assert to_pointer(["a/b", "m~n", "~1", "", 0]) == "/a~1b/m~0n/~01//0"


@pytest.mark.parametrize(
    ("a", "b", "patch"),
    [
        ({"n": 1}, {"n": 1.0}, [{"op": "replace", "path": "/n", "value": 1.0}]),
        ({"n": 1}, {"n": True}, [{"op": "replace", "path": "/n", "value": True}]),
        ([1, 2, 3], [1, 3], [{"op": "remove", "path": "/1"}]),
        ([1, 3], [1, 2, 3], [{"op": "add", "path": "/1", "value": 2}]),
        ([1], [1, 2, 3], [{"op": "add", "path": "/-", "value": 2}, {"op": "add", "path": "/-", "value": 3}]),
        ([1, 2, 3], [], [{"op": "replace", "path": "", "value": []}]),
        ([{"n": 1}], [{"n": 2}], [{"op": "replace", "path": "/0/n", "value": 2}]),
        ({"a": 1}, {"b": 1}, [{"op": "remove", "path": "/a"}, {"op": "add", "path": "/b", "value": 1}]),
        ({"a": []}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ],
)
def test_differences_are_said_shortly(a: Any, b: Any, patch: Any) -> None:
    assert text(diff(a, b)) == text(patch)
