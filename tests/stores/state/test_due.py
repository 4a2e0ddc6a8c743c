"""Due times: when a worker can continue a waiting session."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.stores.state.due import due_at
from helix_agents.types import PendingClientToolCall, SessionState, SuspendedChildWait

NOW = 100


def call(deadline: int | None, submitted: int | None = None) -> PendingClientToolCall:
    return PendingClientToolCall("c", "ask", {}, deadline_at=deadline, submitted_at=submitted)


def session(status: str, *calls: PendingClientToolCall, **fields: Any) -> SessionState:
    pending = {str(number): each for number, each in enumerate(calls)}
    return SessionState("s", "a", status=status, pending_client_tool_calls=pending, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "due"),
    [
        (session("active"), None),
        (session("completed", wake_at=150), None),
        (session("suspended_client_tool", call(150), parent_session_id="p"), None),
        (session("paused"), None),
        (session("paused", wake_at=150), 150),
        (session("paused", wake_at=50), NOW),
        (session("suspended_client_tool"), NOW),
        (session("suspended_client_tool", call(None)), None),
        (session("suspended_client_tool", call(150)), 150),
        (session("suspended_client_tool", call(150), call(170)), 170),
        (session("suspended_client_tool", call(150), call(None)), None),
        (session("suspended_client_tool", call(150), call(None, submitted=1)), 150),
        (session("suspended_client_tool", call(50)), NOW),
        (session("suspended_client_tool", call(None), wake_at=130), 130),
        (session("suspended_client_tool", call(150), wake_at=130), 130),
    ],
)
def test_a_waiting_root_session_is_due_when_its_last_question_expires(state: SessionState, due: int | None) -> None:
    assert due_at(state, NOW) == due


def test_a_child_that_waits_counts_until_all_its_questions_are_answered() -> None:
    waits = {"child": SuspendedChildWait("call", "child", tool_call_ids=["q"], deadline_at=150)}
    waiting = session("suspended_awaiting_children", suspended_awaiting_children=waits)
    answered = session(
        "suspended_awaiting_children", suspended_awaiting_children=waits, completed_client_tool_calls={"q": {}}
    )
    assert (due_at(waiting, NOW), due_at(answered, NOW)) == (150, NOW)
