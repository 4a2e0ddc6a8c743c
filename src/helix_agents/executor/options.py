"""What a user gives to a run: messages and a first state, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..codec import Json
from ..errors import InvalidArgument
from ..history import broken_pair
from ..messages import Message, ensure_sayable
from ..state import initial_state

Input = str | Message | Sequence[Message]


def as_state(custom_state: object) -> Mapping[str, Json] | None:
    """The first state of a session, given plain or as an instance of a state type."""
    return custom_state if custom_state is None or isinstance(custom_state, Mapping) else initial_state(custom_state)


def as_messages(input: Input) -> list[Message]:
    """The messages of an input. Raises `InvalidArgument` for what is not one."""
    if isinstance(input, str):
        return [{"role": "user", "content": input}]
    given = [input] if isinstance(input, Mapping) else input
    if not isinstance(given, Sequence) or not all(isinstance(message, Mapping) for message in given):
        raise InvalidArgument(f"The input is a text, a message or a list of messages, not {type(input).__name__}.")
    messages = [dict(message) for message in given]
    for message in messages:
        ensure_sayable(message)
    broken = broken_pair(messages)
    if broken is not None:
        raise InvalidArgument(f"The input is not a whole conversation: {broken}. Results go to submit_tool_result().")
    return messages


def ensure_said(messages: Sequence[Message]) -> None:
    """Refuse a turn in which the user says nothing: there is nothing to ask a model."""
    if not messages:
        raise InvalidArgument("The input has no messages: a turn begins with at least one.")
