"""Assertions of the kit: they work under `python -O` and outside pytest, and name the first difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

E = TypeVar("E", bound=BaseException)


def plain(value: Any) -> Any:
    """Convert structs, mappings and tuples to plain dicts and lists, recursively."""
    if isinstance(value, msgspec.Struct):
        return {field: plain(getattr(value, field)) for field in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def canonical(value: Any) -> str:
    """Return a string that is equal for equal JSON only: 1, 1.0 and true differ, the order of members does not."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))


def expect(condition: object, sentence: str) -> None:
    """Fail with the sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)


def expect_same(actual: Any, expected: Any, what: str) -> None:
    """Fail unless both are the same JSON, types of numbers included."""
    if canonical(actual) == canonical(expected):
        return
    path, left, right = difference(plain(actual), plain(expected))
    raise AssertionError(f"{what}: {path or '/'} is {_short(left)}, expected {_short(right)}")


def difference(actual: Any, expected: Any, path: str = "") -> tuple[str, Any, Any]:
    """Return the first path at which two plain values differ, and both values there."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for key in sorted(actual.keys() | expected.keys(), key=str):
            left, right = actual.get(key, "(absent)"), expected.get(key, "(absent)")
            if canonical(left) != canonical(right):
                return difference(left, right, f"{path}/{key}")
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        for index, (left, right) in enumerate(zip(actual, expected, strict=True)):
            if canonical(left) != canonical(right):
                return difference(left, right, f"{path}/{index}")
    return path, actual, expected


class Caught:
    """The error that a `raises` block ended with."""

    error: BaseException


@contextmanager
def raises(kind: type[BaseException], what: str) -> Iterator[Caught]:
    """Fail unless the block raises `kind`."""
    caught = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
    except Exception as error:
        raise AssertionError(f"{what}: raised {type(error).__name__} ({error}), expected {kind.__name__}") from error
    else:
        raise AssertionError(f"{what}: raised nothing, expected {kind.__name__}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} ... ({len(text)} characters)"
