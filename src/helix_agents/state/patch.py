"""JSON Patch (RFC 6902), strict: a patch applies as a whole, or raises `PatchError` and changes nothing.

Works on any JSON document. The result shares with the document whatever the patch does not touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import NotSerializable, PatchError
from .editor import Editor, Misfit, fitting, member, put, remove
from .frozen import type_name
from .pointer import to_tokens

Tokens = list[str]


def apply_patch(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """Return the document with a patch applied: add, remove, replace, move, copy, test."""
    if not isinstance(patch, list | tuple):
        raise PatchError(f"A JSON Patch must be a list of operations, not {type(patch).__name__}.")
    editor = Editor(document)
    for number, operation in enumerate(patch):
        try:
            _apply(editor, operation)
        except (PatchError, Misfit, NotSerializable) as error:
            shown = str(operation)[:200]
            raise PatchError(f"Operation {number} of the patch, {shown}, does not apply: {error}") from error
    return editor.root


def _apply(editor: Editor, operation: Any) -> None:
    if not isinstance(operation, Mapping):
        raise PatchError("an operation must be an object")
    name = operation.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        raise PatchError(f"{name!r} is not an operation")
    _OPERATIONS[name](editor, to_tokens(_needed(operation, "path")), operation)


def _needed(operation: Mapping[str, Any], name: str) -> Any:
    if name not in operation:
        raise PatchError(f"{name!r} is missing")
    return operation[name]


def _add(editor: Editor, tokens: Tokens, operation: Mapping[str, Any]) -> None:
    _insert(editor, tokens, _needed(operation, "value"))


def _remove(editor: Editor, tokens: Tokens, operation: Mapping[str, Any]) -> None:
    if not tokens:
        raise PatchError("the whole document cannot be removed")
    path = _path(editor, tokens)
    remove(editor.container(path[:-1]), path[-1])


def _replace(editor: Editor, tokens: Tokens, operation: Mapping[str, Any]) -> None:
    value = _needed(operation, "value")
    if not tokens:
        editor.root = fitting(editor.root, value)
        return
    path = _path(editor, tokens)
    put(editor.container(path[:-1]), path[-1], value)


def _move(editor: Editor, tokens: Tokens, operation: Mapping[str, Any]) -> None:
    source = to_tokens(_needed(operation, "from"))
    value = editor.find(_path(editor, source))
    if tokens == source:
        return
    if tokens[: len(source)] == source:
        raise PatchError("a value cannot be moved into itself")
    _remove(editor, source, operation)
    editor.share()
    _insert(editor, tokens, value)


def _copy(editor: Editor, tokens: Tokens, operation: Mapping[str, Any]) -> None:
    value = editor.find(_path(editor, to_tokens(_needed(operation, "from"))))
    editor.share()
    _insert(editor, tokens, value)


def _test(editor: Editor, tokens: Tokens, operation: Mapping[str, Any]) -> None:
    wanted = _needed(operation, "value")
    if not equal(editor.find(_path(editor, tokens)), wanted):
        raise PatchError("the value there is different")


_OPERATIONS: dict[str, Callable[[Editor, Tokens, Mapping[str, Any]], None]] = {
    **{"add": _add, "remove": _remove, "replace": _replace},
    **{"move": _move, "copy": _copy, "test": _test},
}


def _insert(editor: Editor, tokens: Tokens, value: Any) -> None:
    if not tokens:
        editor.root = fitting(editor.root, value)
        return
    path = _path(editor, tokens[:-1])
    parent = editor.find(path)
    if isinstance(parent, dict):
        put(editor.container(path), tokens[-1], value)
    elif isinstance(parent, list):
        at = len(parent) if tokens[-1] == "-" else _index(tokens[-1])
        if at > len(parent):
            raise PatchError(f"the list has {len(parent)} items, not {at}")
        own = editor.container(path)
        list.insert(own, at, fitting(own, value))
    else:
        raise PatchError(f"a {type_name(parent)} has no members")


def _path(editor: Editor, tokens: Tokens) -> list[str | int]:
    """Return the tokens with positions as numbers; only the document shows which tokens are positions."""
    path: list[str | int] = []
    node = editor.root
    for token in tokens:
        place = _index(token) if isinstance(node, list) else token
        node = member(node, place)
        path.append(place)
    return path


def _index(token: str) -> int:
    if not token.isascii() or not token.isdigit() or (len(token) > 1 and token[0] == "0"):
        raise PatchError(f"{token!r} is not a position in a list")
    return int(token)


def equal(a: Any, b: Any) -> bool:
    """Compare JSON values as `test` requires: `1` equals `1.0`, but `True` equals neither."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return len(a) == len(b) and all(key in b and equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)
