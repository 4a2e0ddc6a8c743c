"""Convert values to JSON text and back, and check that a value is JSON.

Text is what every backend stores: UTF-8, one line, no NUL (JSON escapes it). msgspec does the work; lone
surrogates, which UTF-8 cannot carry, take the slower standard library path as `\\udXXX` escapes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from .errors import InvalidArgument, NotSerializable, StoreCorrupt, shown

Json = Any
"""A JSON value. `Any`, because a recursive alias makes every `state["a"]["b"]` of a user a type error."""

T = TypeVar("T")

MAX_DEPTH = 200
MAX_DIGITS = 4300
"""The longest integer that Python parses from a string."""

MAX_COUNT = 2**53 - 1
"""The largest step, sequence, offset, version or time: exact in SQL, Lua and JavaScript."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_ATOMS = frozenset({str, int, bool, type(None)})
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def encode(value: Json) -> str:
    """Return the JSON text of a value that `ensure_json` has accepted, or of one of our structs.

    Raises `NotSerializable` for the rare strings and integers that JSON text cannot reproduce; checking every value for
    them beforehand would cost more than encoding.
    """
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value)
        ensure_exact(plain, "")
        return json.dumps(plain, separators=(",", ":"))
    except ValueError:
        ensure_exact(msgspec.to_builtins(value), "")
        raise


def ensure_exact(value: Json, path: str) -> None:
    """Raise `NotSerializable` for a JSON value that would change when its text is read back."""
    if isinstance(value, dict):
        for key, item in value.items():
            ensure_exact(key, path)
            ensure_exact(item, f"{path}/{escape_pointer(key)}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            ensure_exact(item, f"{path}/{index}")
    elif isinstance(value, str):
        if _PAIR.search(value):  # the escapes of two surrogates would be read back as one character
            raise NotSerializable(path, "a surrogate pair written as two characters")
    elif isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        raise NotSerializable(path, f"an integer of more than {MAX_DIGITS} digits")


def decode(text: str | bytes) -> Json:
    """Return the value of a JSON text that `encode` made. Raise `StoreCorrupt` if it cannot have made it."""
    try:
        return _decoder.decode(text)
    except RecursionError as error:
        raise StoreCorrupt(f"Stored JSON is nested too deeply: {text[:80]!r}") from error
    except msgspec.DecodeError:
        try:
            return json.loads(text, parse_constant=_reject_constant)
        except (ValueError, RecursionError) as error:
            raise StoreCorrupt(f"Stored text is not JSON: {text[:80]!r}") from error


def _reject_constant(name: str) -> None:
    """Reject NaN and the infinities, which Python's parser accepts."""
    raise ValueError(f"{name} is not JSON")


def decode_many(texts: list[str]) -> list[Json]:
    """Return the values of many JSON texts, faster than one by one."""
    try:
        values: list[Json] = _decoder.decode("[" + ",".join(texts) + "]")
    except msgspec.DecodeError:
        return [decode(text) for text in texts]
    # A text that holds two values would shift the following ones, so decode each separately.
    return values if len(values) == len(texts) else [decode(text) for text in texts]


def escape_pointer(token: str) -> str:
    """Return a key as a reference token of a JSON pointer (RFC 6901)."""
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def ensure_json(value: object, path: str = "") -> None:
    """Raise `NotSerializable` with the pointer to the first thing in `value` that is not JSON."""
    if not is_json(value):
        _check(value, path, [])


def ensure_storable(value: object, path: str = "") -> None:
    """Raise `NotSerializable` unless the value is JSON and survives encoding: for values that a backend encodes
    itself."""
    ensure_json(value, path)
    if value is not None:
        encode(value)


def is_json(value: Any, room: int = MAX_DEPTH) -> bool:
    """Return whether a value is JSON. Faster than `ensure_json`, because it does not track paths."""
    if isinstance(value, dict):
        if not room:
            return False  # too deep, or circular
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _ATOMS and not is_json(item, room - 1)):
                return False
        return True
    if isinstance(value, list):
        if not room:
            return False
        for item in value:  # noqa: SIM110  # a generator costs more than what it would be asked
            if type(item) not in _ATOMS and not is_json(item, room - 1):
                return False
        return True
    return math.isfinite(value) if type(value) is float else type(value) in _ATOMS


def _check(value: object, path: str, above: list[int]) -> None:
    kind = value.__class__
    if kind in _ATOMS:
        return
    if kind is float:
        if not math.isfinite(value):  # type: ignore[arg-type]  # narrowed by __class__, which mypy cannot see
            raise NotSerializable(path, str(value))
        return
    if isinstance(value, dict | list):
        if id(value) in above:
            raise NotSerializable(path, "circular reference")
        if len(above) >= MAX_DEPTH:
            raise NotSerializable(path, f"nesting deeper than {MAX_DEPTH}")
        above.append(id(value))
        if isinstance(value, dict):
            _check_members(value, path, above)
        else:
            for index, item in enumerate(value):
                if item.__class__ not in _ATOMS:
                    _check(item, f"{path}/{index}", above)
        above.pop()
        return
    raise NotSerializable(path, kind.__name__)


def _check_members(value: dict[Any, Any], path: str, above: list[int]) -> None:
    for key, item in value.items():
        if key.__class__ is not str:
            raise NotSerializable(path, f"object key {shown(key)} ({type(key).__name__})")
        if item.__class__ not in _ATOMS:
            _check(item, f"{path}/{escape_pointer(key)}", above)


def ensure_object(value: object, what: str, required: str) -> None:
    """Raise unless the value is a JSON object with the string member `required` (a message's role, a chunk's type)."""
    if value.__class__ is not dict and not isinstance(value, Mapping):
        raise InvalidArgument(f"A {what} must be a dict, not {type(value).__name__}.")
    if not isinstance(value.get(required), str):
        raise InvalidArgument(f"A {what} needs a string {required!r}: {shown(value)}")
    ensure_json(value)


def ensure_count(value: object, what: str) -> int:
    """Return the number. Raises `InvalidArgument` unless it is an integer from 0 to `MAX_COUNT`."""
    if value.__class__ is not int or not 0 <= value <= MAX_COUNT:
        raise InvalidArgument(f"{what} must be an integer from 0 to {MAX_COUNT}, not {shown(value)}.")
    return value


def to_struct(kind: type[T], data: object) -> T:
    """Return decoded JSON as one of our structs. Raises `StoreCorrupt` if it does not fit."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"A stored {kind.__name__} cannot be read: {error}") from error


def escape_text(text: str) -> str:
    """Return a string as one that every backend can store and an operator can read: JSON's escapes without the
    quotes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return encode(text)[1:-1]


def unescape_text(text: str) -> str:
    """Return the string that was given to `escape_text`."""
    if "\\" not in text:
        return text
    return str(decode(f'"{text}"'))
