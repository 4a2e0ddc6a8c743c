"""Deadlines of questions to people and clients: when they expire, and which responses are too late. Pure."""

from __future__ import annotations

from ...tools.tool import Tool
from ...types import PendingClientToolCall


def deadline_of(tool: Tool, asked_at: int) -> int | None:
    """Return the deadline for a question of this tool; None if it has none."""
    return None if tool.deadline_seconds is None else asked_at + int(tool.deadline_seconds * 1000)


def has_expired(pending: PendingClientToolCall, now: int) -> bool:
    """Return whether the deadline has passed without a response."""
    return pending.submitted_at is None and pending.deadline_at is not None and now >= pending.deadline_at


def is_too_late(pending: PendingClientToolCall, submitted_at: int) -> bool:
    """Return whether a response at this time is too late."""
    return pending.deadline_at is not None and submitted_at > pending.deadline_at
