"""Deadlines of questions: when they end, and which responses come too late."""

from __future__ import annotations

import pytest

from helix_agents import tool
from helix_agents.executor.step.deadlines import deadline_of, has_expired, is_too_late
from helix_agents.types import PendingClientToolCall


def pending(deadline: int | None, submitted: int | None = None) -> PendingClientToolCall:
    return PendingClientToolCall("c", "ask", {}, deadline_at=deadline, submitted_at=submitted)


def test_a_deadline_counts_from_the_question() -> None:
    @tool(requires_approval=True, deadline_seconds=1.5)
    def ask() -> str:
        return ""

    @tool(requires_approval=True)
    def wait() -> str:
        return ""

    assert (deadline_of(ask, 1000), deadline_of(wait, 1000)) == (2500, None)


@pytest.mark.parametrize(
    ("call", "now", "expected"),
    [
        (pending(10), 9, False),
        (pending(10), 10, True),
        (pending(None), 10, False),
        (pending(10, submitted=5), 11, False),
    ],
)
def test_a_question_without_a_response_expires_at_its_deadline(
    call: PendingClientToolCall, now: int, expected: bool
) -> None:
    assert has_expired(call, now) is expected


@pytest.mark.parametrize(("deadline", "submitted", "expected"), [(10, 10, False), (10, 11, True), (None, 11, False)])
def test_a_response_after_the_deadline_is_too_late(deadline: int | None, submitted: int, expected: bool) -> None:
    assert is_too_late(pending(deadline), submitted) is expected
