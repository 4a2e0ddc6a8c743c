"""Parse SQLite's messages about a guard that undid a batch; the same in a file, in D1 and in a Durable Object."""

from __future__ import annotations

import re

from ..driver import BatchRefused

_CHECK = re.compile(r"CHECK constraint failed: guard_(\w+)")
_UNIQUE = re.compile(r"UNIQUE constraint failed: (\w+)\.")


def refused_batch(text: str) -> BatchRefused | None:
    """Return the guard that a message of SQLite names; None if it names none."""
    if found := _CHECK.search(text):
        return BatchRefused(found[1])
    if found := _UNIQUE.search(text):
        return BatchRefused(f"unique {found[1]}")
    return None
