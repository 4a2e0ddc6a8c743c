"""Deadlines of questions to people and clients: when they end, and which answers come too late. Pure."""

from __future__ import annotations

from ...tools.tool import Tool
from ...types import PendingClientToolCall


def deadline_of(tool: Tool, asked_at: int) -> int | None:
    """Until when a question of this tool may be answered; None: for ever."""
    return None if tool.deadline_seconds is None else asked_at + int(tool.deadline_seconds * 1000)


def has_expired(pending: PendingClientToolCall, now: int) -> bool:
    """Whether nobody has answered in time."""
    return pending.submitted_at is None and pending.deadline_at is not None and now >= pending.deadline_at


def is_too_late(pending: PendingClientToolCall, submitted_at: int) -> bool:
    """Whether an answer that comes at this time no longer counts."""
    return pending.deadline_at is not None and submitted_at > pending.deadline_at
