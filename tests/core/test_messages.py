"""Messages: which ones a conversation accepts, who wrote them, and their ids."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.messages import (
    Message,
    automatic_message,
    ensure_sayable,
    identified,
    ids_of,
    is_from_user,
    is_undo,
    without_native,
    without_thinking,
)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ],
)
def test_a_message_that_models_accept_passes(message: Message) -> None:
    ensure_sayable(message)
    assert ids_of([message]) == set()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "effects", "content": ""}, "Unknown role 'effects'"),
        ({"role": "user", "content": None}, "must be a string or a list of parts"),
        ({"role": "user", "content": 5}, "not int"),
        ({"role": "user", "content": [{"type": "smell"}]}, "smell"),
    ],
)
def test_a_message_that_no_model_accepts_is_rejected(message: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        ensure_sayable(message)


def test_reminders_of_the_library_are_not_from_the_user() -> None:
    assert is_from_user({"role": "user", "content": "Hi"})
    assert not is_from_user(automatic_message("Use the tool."))
    assert not is_from_user({"role": "assistant", "content": "Hi"})
    assert is_undo({"role": "assistant", "content": "", "undo": {}})
    assert not is_undo({"role": "tool", "content": "", "undo": {}})


def test_every_user_and_assistant_message_gets_an_id_that_follows_from_its_step() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b", "id": "mine"},
        {"role": "user", "content": "c", "id": "mine"},
        {"role": "user", "content": "d", "id": "taken"},
        {"role": "user", "content": "e", "id": "helix/reserved"},
        {"role": "tool", "content": "f"},
    ]
    first = identified(messages, {"taken"}, "run-1")
    assert [message.get("id") for message in first] == [
        "msg-run-1",
        "mine",
        "msg-run-1-2",
        "msg-run-1-3",
        "msg-run-1-4",
        None,
    ]
    assert identified(messages, {"taken"}, "run-1") == first
    assert "id" not in messages[0]
    assert ids_of(first) == {"msg-run-1", "mine", "msg-run-1-2", "msg-run-1-3", "msg-run-1-4"}


def test_private_members_are_left_out_and_nothing_else() -> None:
    plain: Message = {"role": "assistant", "content": "Hi"}
    full: Message = {**plain, "thinking": "Hm", "native": {}}
    assert without_thinking(full) == plain
    assert without_native(full) == {**plain, "thinking": "Hm"}
    assert without_native(plain) is plain
