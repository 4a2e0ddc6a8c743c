"""What SQLite says when a guard undoes a batch; its words are the same in a file, in D1 and in a Durable Object."""

from __future__ import annotations

import re

from .driver import GuardTripped

_CHECK = re.compile(r"CHECK constraint failed: guard_(\w+)")
_UNIQUE = re.compile(r"UNIQUE constraint failed: (\w+)\.")


def guard_tripped(text: str) -> GuardTripped | None:
    """The guard that a message of SQLite names, if it names one."""
    if found := _CHECK.search(text):
        return GuardTripped(found[1])
    if found := _UNIQUE.search(text):
        return GuardTripped(f"unique {found[1]}")
    return None
