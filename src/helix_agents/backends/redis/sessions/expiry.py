"""Session lifetimes in Redis: all keys of a session expire together, some time after its last write."""

from __future__ import annotations

from ....lifecycle import SUSPENDED, WAITING
from ....types import SessionState

SESSION_TTL_SECONDS = 604_800
"""How long a session is retained after its last write, unless the store has another setting."""

WAITING_MS = 366 * 86_400_000
"""How long a session may wait for a person before it expires."""


def lives_until(state: SessionState, now: int) -> int:
    """Return the earliest time at which a session may expire: one that waits outlives the usual time to live."""
    waits_until = now + WAITING_MS if state.status in SUSPENDED else 0
    wakes_at = (state.wake_at or 0) if state.status in WAITING else 0
    return max(state.expires_at or 0, waits_until, wakes_at)
