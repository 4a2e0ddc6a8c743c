"""JSON pointers (RFC 6901): convert paths of keys and positions to strings, and strings to tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..codec import escape_pointer
from ..errors import PatchError

_BAD_ESCAPE = re.compile(r"~(?![01])")


def to_pointer(path: Iterable[str | int]) -> str:
    """Return the pointer of a path; the empty path is the whole document, `""`."""
    pointer = ""
    for token in path:
        if isinstance(token, int):
            pointer += f"/{token}"
        elif "~" in token or "/" in token:
            pointer += "/" + escape_pointer(token)
        else:
            pointer += "/" + token
    return pointer


def to_tokens(pointer: object) -> list[str]:
    """Return the unescaped reference tokens of a pointer. Raises `PatchError` if the string is not a pointer."""
    if not isinstance(pointer, str):
        raise PatchError(f"A JSON pointer must be a string, not {type(pointer).__name__}.")
    if pointer == "":
        return []
    if pointer[0] != "/":
        raise PatchError(f"The JSON pointer {pointer!r} does not start with '/'.")
    if "~" not in pointer:
        return pointer[1:].split("/")
    if _BAD_ESCAPE.search(pointer):
        raise PatchError(f"The JSON pointer {pointer!r} has a '~' that is neither '~0' nor '~1'.")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]
