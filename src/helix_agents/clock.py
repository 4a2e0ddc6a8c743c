"""Time and ids, injectable, so that a test can own both."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Answers the time now in integer epoch milliseconds."""

IdSource = Callable[[], str]
"""Answers a new unique id; every call another one."""


def system_clock() -> int:
    """The wall clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def random_id() -> str:
    """128 random bits as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def checkpoint_id(session_id: str, step_count: int, epoch_ms: int, unique: str) -> str:
    """The id of a checkpoint; `unique` supplies the last six digits."""
    return f"cpv1-{session_id}-s{step_count}-t{epoch_ms}-{unique[:6]}"
