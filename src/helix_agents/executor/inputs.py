"""What a user says, as the messages that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InvalidArgument
from ..messages import Message, ensure_sayable

Input = str | Message | Sequence[Message]


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
    return messages
