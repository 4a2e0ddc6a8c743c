"""Values to JSON and back; an error names the path of what is not JSON."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum

import pytest

from helix_agents import InvalidArgument, NotSerializable
from helix_agents.codec import decode, decode_many, encode, ensure_json, escape_text, unescape_text
from helix_agents.errors import StoreCorrupt, shown
from helix_agents.ids import ensure_id


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    ["\x00", "\ud800 alone", "😀 é ~ /", "", 1.0, 1, True, None, 2**63 - 1, -(2**63), [], {}, {"": [{"a": [1.5]}]}],
)
def test_every_json_value_survives_its_text(value: object) -> None:
    ensure_json(value)
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


def test_text_never_holds_a_raw_nul_or_surrogate() -> None:
    assert encode("\x00\ud800").isascii()
    assert "\x00" not in encode("\x00")


@pytest.mark.parametrize(
    ("value", "path", "type_name"),
    [
        ({"user": {"callback": print}}, "/user/callback", "builtin_function_or_method"),
        ({"a": [1, {"b/c": {1, 2}}]}, "/a/1/b~1c", "set"),
        ({"m~n": b"x"}, "/m~0n", "bytes"),
        ([float("nan")], "/0", "nan"),
        ([float("-inf")], "/0", "-inf"),
        ((1, 2), "", "tuple"),
        ({"when": datetime(2020, 1, 1)}, "/when", "datetime"),
        ({"price": Decimal(1)}, "/price", "Decimal"),
        ({"colour": Colour.RED}, "/colour", "Colour"),
    ],
)
def test_what_is_not_json_is_refused_with_its_pointer(value: object, path: str, type_name: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        ensure_json(value)
    assert (caught.value.path, caught.value.type_name) == (path, type_name)
    assert f"{type_name} is not JSON" in str(caught.value)


def test_a_key_that_is_no_string_is_refused() -> None:
    with pytest.raises(NotSerializable, match=r"/a: object key 1 \(int\) is not JSON"):
        ensure_json({"a": {1: 2}})


def test_circular_data_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["self"] = [loop]
    with pytest.raises(NotSerializable, match="/self/0: circular reference"):
        ensure_json(loop)


def test_the_same_value_twice_is_not_circular() -> None:
    shared = [1]
    value = {"a": shared, "b": shared}
    ensure_json(value)
    assert decode(encode(value)) == {"a": [1], "b": [1]}


def test_many_texts_decode_as_one_by_one() -> None:
    texts = [encode(value) for value in ("\ud800", {"a": 1}, [1.0])]
    assert decode_many(texts) == ["\ud800", {"a": 1}, [1.0]]


@pytest.mark.parametrize("text", ["{not json", '{"a": NaN}', "[-Infinity]", "[" * 100_000, '{"a":' * 100_000])
def test_damaged_text_is_corrupt_storage(text: str) -> None:
    with pytest.raises(StoreCorrupt):
        decode(text)


@pytest.mark.parametrize("text", ["plain", 'quo"te', "back\\slash", "nul\x00", "\ud800", "line\nbreak", "é😀", ""])
def test_escaped_text_comes_back(text: str) -> None:
    assert unescape_text(escape_text(text)) == text
    assert escape_text(text).isprintable()


@pytest.mark.parametrize("bad", ["", "a{b", "a}b", "a\nb", "a\x00b", "\x7f", "x" * 257, "\ud800", None, 7])
def test_bad_ids_are_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="session_id"):
        ensure_id(bad, "session_id")


@pytest.mark.parametrize("good", ["a", "x" * 256, "user@host/1", "é 😀", "a:b"])
def test_good_ids_are_taken(good: str) -> None:
    assert ensure_id(good, "session_id") == good


@pytest.mark.parametrize("value", [{"n": [1, 10**5000]}, {"n": [1, "\ud83d\ude00"]}, {"n": [1, {"\ud83d\ude00": 1}]}])
def test_what_json_text_would_not_bring_back_is_refused_with_its_pointer(value: object) -> None:
    with pytest.raises(NotSerializable, match="/n/1"):
        encode(value)


def test_halves_of_an_emoji_that_stand_alone_come_back() -> None:
    text = "\ude00\ud83d \ud83d 😀"
    assert decode(encode(text)) == text


@pytest.mark.parametrize("value", [10**5000, "x" * 10**6, {"a": 1}], ids=["digits", "text", "dict"])
def test_an_error_shows_any_value_in_a_few_words(value: object) -> None:
    assert 0 < len(shown(value)) < 200


def test_an_error_shows_a_value_that_is_deep_or_cannot_show_itself() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    deep: object = 1
    for _ in range(10_000):
        deep = [deep]
    assert "Shy" in shown(Shy())
    assert len(shown(deep)) < 200
