"""Time and ids, injectable, so that a test can own both."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import cache

Clock = Callable[[], int]
"""Returns the current time in integer epoch milliseconds."""

IdSource = Callable[[], str]
"""Returns a new unique id at every call."""


def system_clock() -> int:
    """The wall clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@cache
def _generator() -> random.Random:
    """The source of ids, seeded when the first one is asked for.

    Ids must be unique, not secret, so one seed from the system per process will do: asking it for every id is a system
    call that costs more than all else in a small write. A generator of our own, because programs seed the shared one.
    Not at import: a Cloudflare Worker is imported once, for a snapshot without entropy, and all copies of it would
    hand out the same ids.
    """
    made = random.Random()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.seed)
    return made


def random_id() -> str:
    """128 random bits as 32 hexadecimal digits."""
    return _generator().getrandbits(128).to_bytes(16, "big").hex()


def pause_seconds(attempt: int) -> float:
    """How long to wait before retrying after a lost race: random and growing, so that losers do not collide again."""
    return _generator().uniform(0, min(0.05, 0.001 * 2 ** min(attempt, 6)))
