"""Time and ids, injectable, so that a test can control both."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import cache

from .retry import CONTENTION

Clock = Callable[[], int]
"""Returns the current time in integer epoch milliseconds."""

IdSource = Callable[[], str]
"""Returns a new unique id at every call."""


def system_clock() -> int:
    """Return the wall-clock time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@cache
def _generator() -> random.Random:
    """Return the source of ids, seeded on first use.

    Ids must be unique, not secret, so one seed from the system per process is enough: a system call per id would cost
    more than the rest of a small write. It is our own generator, because programs seed the shared one. It is not seeded
    at import: a Cloudflare Worker is imported once, into a snapshot without entropy, and all copies would produce the
    same ids.
    """
    made = random.Random()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.seed)
    return made


def random_id() -> str:
    """Return 128 random bits as 32 hexadecimal digits."""
    return _generator().getrandbits(128).to_bytes(16, "big").hex()


def pause_seconds(attempt: int) -> float:
    """Return how long to wait before retrying after a lost race: random and growing, so that losers do not collide
    again."""
    return _generator().uniform(0, CONTENTION.delay_seconds(attempt))
