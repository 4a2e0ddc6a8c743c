"""Drafts as dicts and lists: aliases, moves, the end of an update, what is rejected."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import json
import math
from typing import Any

import pydantic
import pytest

from helix_agents.codec import MAX_DEPTH
from helix_agents.errors import DraftClosed, NotSerializable
from helix_agents.state import FrozenDict, StateTracker


def after(base: dict[str, Any], change: Any) -> Any:
    return StateTracker(base).update(change)


def test_an_alias_of_a_live_subtree_follows_its_later_edits() -> None:
    def change(draft: Any) -> None:
        draft["b"] = draft["a"]
        draft["a"]["n"] = 1
        draft["b"]["m"] = 2

    assert after({"a": {}}, change) == {"a": {"n": 1, "m": 2}, "b": {"n": 1, "m": 2}}


def test_a_subtree_moved_and_edited_afterwards() -> None:
    def change(draft: Any) -> None:
        moved = draft["from"].pop(0)
        draft["to"] = {"deep": [moved]}
        moved["n"] = 1

    assert after({"from": [{"n": 0}, 5]}, change) == {"from": [5], "to": {"deep": [{"n": 1}]}}


def test_a_fresh_container_keeps_following_its_own_name_until_the_update_ends() -> None:
    mine: dict[str, Any] = {"n": 0}

    def change(draft: Any) -> None:
        draft["a"] = draft["b"] = mine
        mine["n"] = 1
        draft["a"]["m"] = 2

    tracker = StateTracker({})
    tracker.update(change)
    mine["n"] = 99
    assert tracker.state == {"a": {"n": 1, "m": 2}, "b": {"n": 1, "m": 2}}


def test_a_default_given_to_setdefault_may_be_filled_by_its_own_name() -> None:
    mine: list[int] = []

    def change(draft: Any) -> None:
        draft.setdefault("l", mine)
        mine.append(1)

    assert after({}, change) == {"l": [1]}


def test_a_default_given_to_setdefault_is_one_container_wherever_it_is_put() -> None:
    mine: list[int] = []

    def change(draft: Any) -> None:
        draft.setdefault("a", mine).append(1)
        draft["b"] = mine
        draft["c"] = {"in": mine}
        draft.setdefault("d", mine).append(2)

    assert after({}, change) == {"a": [1, 2], "b": [1, 2], "c": {"in": [1, 2]}, "d": [1, 2]}


def test_popitem_takes_the_last_member() -> None:
    assert after({"a": 1, "b": 2}, lambda d: d.popitem()) == {"a": 1}


def test_drafts_answer_like_dicts_and_lists() -> None:
    def look(draft: Any) -> None:
        assert list(reversed(draft)) == ["l", "o"]
        assert list(reversed(draft.items()))[1][0] == "o"
        assert draft["o"] == {"x": 1} == draft["o"]
        assert draft["o"] | {"y": 2} == {"x": 1, "y": 2} == {"y": 2} | draft["o"]
        assert draft["l"] + [4] == [3, 1, [2], 4]
        assert [0] + draft["l"] == [0, 3, 1, [2]]
        assert draft["l"] * 2 == [3, 1, [2], 3, 1, [2]]
        assert draft["l"][1:] == [1, [2]]
        assert draft["l"][::-1] == [[2], 1, 3]
        assert [2] in draft["l"]
        assert draft["l"].index([2]) == 2
        assert draft["l"].count(1) == 1
        assert draft["l"] > [2]
        with pytest.raises(ValueError, match="not in list"):
            draft["l"].index(1, 2)
        with pytest.raises(IndexError):
            draft["l"][3]
        with pytest.raises(KeyError):
            draft["missing"]
        match draft:
            case {"o": {"x": x}, "l": [first, *_]}:
                assert (x, first) == (1, 3)
            case _:
                pytest.fail("a draft is a Mapping")
        assert copy.deepcopy(draft) == {"o": {"x": 1}, "l": [3, 1, [2]]}
        assert json.dumps(copy.deepcopy(draft["l"])) == "[3, 1, [2]]"

    before = {"o": {"x": 1}, "l": [3, 1, [2]]}
    tracker = StateTracker(before)
    state = tracker.state
    assert tracker.update(look) is state


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d["o"],
        lambda d: d.update(n=1),
        lambda d: d.increment("n"),
        lambda d: d == {},
        lambda d: len(d),
        lambda d: list(d.items()),
        lambda d: copy.deepcopy(d),
        lambda d: d | {},
    ],
)
def test_a_draft_used_after_its_update_raises(use: Any) -> None:
    kept: list[Any] = []
    StateTracker({"o": {}}).update(lambda d: kept.append(d))
    with pytest.raises(DraftClosed, match="update that has ended"):
        use(kept[0])
    assert repr(kept[0]) == "<closed draft>"


@pytest.mark.parametrize("use", [lambda x: x[0], lambda x: x.append(1), lambda x: list(x), lambda x: x * 2, len, bool])
def test_a_list_draft_used_after_its_update_raises(use: Any) -> None:
    kept: list[Any] = []
    StateTracker({"l": [1]}).update(lambda d: kept.append(d["l"]))
    with pytest.raises(DraftClosed):
        use(kept[0])


def test_a_draft_of_an_update_that_failed_is_closed_too() -> None:
    kept: list[Any] = []
    tracker = StateTracker({"n": 1})
    with pytest.raises(ZeroDivisionError):
        tracker.update(lambda d: (kept.append(d), 1 / 0))
    with pytest.raises(DraftClosed):
        kept[0]["n"] = 2


@pytest.mark.parametrize("wrap", [lambda draft: draft, lambda draft: {"in": [draft]}])
def test_a_draft_of_an_ended_update_cannot_be_put_in(wrap: Any) -> None:
    kept: list[Any] = []
    tracker = StateTracker({"o": {}})
    tracker.update(lambda d: kept.append(d["o"]))
    with pytest.raises(DraftClosed):
        tracker.update(lambda d: d.update(x=wrap(kept[0])))


@pytest.mark.parametrize(("wrap", "pointer"), [(lambda draft: draft, "/x"), (lambda draft: [draft], "/x/0")])
def test_a_draft_of_another_tracker_cannot_be_put_in(wrap: Any, pointer: str) -> None:
    one, other = StateTracker({"o": {}}), StateTracker({})
    with pytest.raises(NotSerializable) as caught:
        one.update(lambda d: other.update(lambda e: e.update(x=wrap(d["o"]))))
    assert caught.value.path == pointer


def put_inside_itself(draft: Any) -> None:
    draft["a"]["b"]["up"] = draft["a"]


def circle_of_plain_data(draft: Any) -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    draft["a"]["c"] = circle


def circle_through_both(draft: Any) -> None:
    fresh = [draft["a"]]
    draft["a"]["d"] = {"x": fresh}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        (put_inside_itself, "/a/b/up"),
        (circle_of_plain_data, "/a/c/self"),
        (circle_through_both, "/a/d/x/0"),
        (lambda d: d.update(root=d), "/root"),
    ],
)
def test_state_inside_itself_is_refused(change: Any, pointer: str) -> None:
    tracker = StateTracker({"a": {"b": {}}})
    with pytest.raises(NotSerializable, match="circular reference") as caught:
        tracker.update(change)
    assert caught.value.path == pointer
    assert tracker.state == {"a": {"b": {}}}


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    x: int = 1


@dataclasses.dataclass
class Point:
    x: int = 1


class Pair(collections.namedtuple("Pair", "a b")):
    pass


REFUSED = [
    (lambda: None, "function"),
    ((1, 2), "tuple"),
    (Pair(1, 2), "Pair"),
    ({1}, "set"),
    (frozenset(), "frozenset"),
    (b"x", "bytes"),
    (bytearray(), "bytearray"),
    (decimal.Decimal(1), "Decimal"),
    (datetime.datetime(2020, 1, 1), "datetime"),
    (Colour.RED, "Colour"),
    (Model(), "Model"),
    (Point(), "Point"),
    (Point, "type"),
    (1j, "complex"),
    (object(), "object"),
    (range(3), "range"),
    (iter([]), "list_iterator"),
    (collections.UserDict(), "UserDict"),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    ({1: 2}, "object key 1 (int)"),
    ({None: 2}, "object key None (NoneType)"),
]


@pytest.mark.parametrize(("value", "name"), REFUSED, ids=[name for _, name in REFUSED])
def test_what_is_not_json_is_refused_by_name_at_its_place(value: Any, name: str) -> None:
    tracker = StateTracker({"user": {"l": [0]}})
    state = tracker.state
    changes = {
        "/user/x~1y": lambda d: d["user"].update({"x/y": value}),
        "/user/m~0n/0/k": lambda d: d["user"].update({"m~n": [{"k": value}]}),
        "/user/l/0": lambda d: d["user"]["l"].__setitem__(0, value),
        "/user/l/1": lambda d: d["user"]["l"].append(value),
        "/user/l/1/1": lambda d: d["user"]["l"].append([1, value]),
        "/user/s": lambda d: d["user"].setdefault("s", value),
    }
    for pointer, change in changes.items():
        with pytest.raises(NotSerializable) as caught:
            tracker.update(change)
        assert (caught.value.path, caught.value.type_name) == (pointer, name)
        assert str(caught.value) == f"{pointer}: {name} is not JSON"
    assert tracker.state is state
    with pytest.raises(NotSerializable) as caught:
        StateTracker({"a": [value]})
    assert caught.value.path == "/a/0"


@pytest.mark.parametrize("key", [1, None, b"k", ("a",)])
def test_a_key_that_is_no_string_is_refused_at_its_object(key: Any) -> None:
    tracker = StateTracker({"o": {}})
    with pytest.raises(NotSerializable, match=r"^/o: object key .* is not JSON$"):
        tracker.update(lambda d: d["o"].update({key: 1}))


def test_nesting_has_a_limit() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(NotSerializable, match="nesting deeper"):
        StateTracker({"a": deep})


class Level(enum.IntEnum):
    HIGH = 3


class Name(enum.StrEnum):
    BOB = "bob"


def test_subclasses_of_json_types_become_the_plain_value() -> None:
    value = {
        Name.BOB: Name.BOB,
        "level": Level.HIGH,
        "d": collections.OrderedDict(a=1),
        "f": type("F", (float,), {})(2),
    }
    state = after({}, lambda d: d.update(value=value, name=Name.BOB))
    assert json.dumps(state) == '{"value": {"bob": "bob", "level": 3, "d": {"a": 1}, "f": 2.0}, "name": "bob"}'
    assert [type(x) for x in (*state["value"], *state["value"].values())] == [str] * 5 + [int, FrozenDict, float]


def test_none_can_be_set_next_to_a_container_that_was_read() -> None:
    def change(draft: Any) -> None:
        assert draft["l"][0] == {}
        draft["l"][1] = None

    assert after({"l": [{}, 1]}, change) == {"l": [{}, None]}


def test_putting_back_the_snapshot_of_a_container_undoes_its_edits() -> None:
    tracker = StateTracker({"o": {"n": 1}, "l": [{"n": 1}]})
    state = tracker.state

    def change(draft: Any) -> None:
        draft["o"]["n"] = draft["l"][0]["n"] = 2
        draft["o"] = state["o"]
        draft["l"][0] = state["l"][0]

    assert tracker.update(change) is state


def test_edits_of_an_item_survive_a_change_of_the_list_around_it() -> None:
    def change(draft: Any) -> None:
        draft["l"][1]["n"] = 5
        del draft["l"][0]

    assert after({"l": [{"n": 0}, {"n": 1}]}, change) == {"l": [{"n": 5}]}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda items: items.__setitem__("a", 1),
        lambda items: items.__getitem__("a"),
        lambda items: items.insert("a", 1),
        lambda items: items.pop("a"),
        lambda items: items.__imul__("a"),
    ],
)
def test_a_position_that_is_no_number_is_a_type_error_as_in_a_list(wrong: Any) -> None:
    tracker = StateTracker({"items": [1]})
    with pytest.raises(TypeError):
        wrong([1])
    with pytest.raises(TypeError):
        tracker.update(lambda draft: wrong(draft["items"]))
    assert tracker.state == {"items": [1]}
