"""Queued messages: their order in a step, and which ones a commit includes."""

from __future__ import annotations

import pytest

from helix_agents.executor.session.queued_messages import NewlyQueued, ensure_all_taken, in_order, queued_in, taken_from
from helix_agents.messages import Message
from helix_agents.types import SessionState


def said(text: str) -> Message:
    return {"role": "user", "content": text}


def with_queue(*names: str) -> SessionState:
    return SessionState("s", "a", queued_messages=[{"id": name, "message": said(name)} for name in names])


def test_messages_come_as_queued_at_the_claim_then_given_then_queued_since() -> None:
    found = in_order(with_queue("q1", "q2", "q3"), with_queue("q1"), [said("given")])
    assert [message["content"] for message in found] == ["q1", "given", "q2", "q3"]


def test_a_commit_that_missed_a_message_is_decided_again() -> None:
    session = with_queue("q1", "q2")
    assert queued_in(session) == [said("q1"), said("q2")]
    ensure_all_taken(session, taken_from(session))
    with pytest.raises(NewlyQueued):
        ensure_all_taken(session, ["q1"])
