"""Turns: the form of a conversation that Anthropic and Google share, in which user and model alternate.

System messages at the start join the instructions; later ones are user turns. A reply that was cut off is followed by a
user turn, because models do not continue an open reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from ..messages import Message
from .contract import ModelRequest
from .native import Block, CallIds, blocks_of, first_with_reasoning
from .parts import PartMapper, latest_user_message
from .provider import sendable

CONTINUE = "Continue."
"""The user turn after a reply that was cut off, and before a history that starts with a reply."""


class Turns(ABC):
    """Writes the messages of one request in a provider's dialect."""

    dialect: ClassVar[str]
    model_role: ClassVar[str]
    content: ClassVar[str]
    """The member of a turn that holds its blocks."""

    def __init__(self, issuer: str, parts: PartMapper) -> None:
        self.parts = parts
        self.ids = CallIds()
        self._issuer = issuer
        self._turns: list[dict[str, Any]] = []

    def write(self, messages: Sequence[Message], *, with_reasoning: bool) -> list[dict[str, Any]]:
        """Return the turns."""
        first = first_with_reasoning(messages, self.dialect, self._issuer) if with_reasoning else len(messages)
        latest = latest_user_message(messages)
        is_open = True  # the next reply needs a user turn before it
        for index, message in enumerate(messages):
            match message["role"]:
                case "thinking":
                    continue
                case "assistant":
                    if blocks := self._reply(message, with_reasoning=index >= first):
                        self._add("user", [self.parts.text(CONTINUE)] if is_open else [])
                        self._add(self.model_role, blocks)
                        is_open = bool(message.get("interrupted"))
                    continue
                case "tool":
                    blocks = [self._result(message)]
                case _:
                    blocks = self.parts.message(message, latest=index == latest)
            self._add("user", blocks)
            is_open = is_open and not blocks
        self._add("user", [self.parts.text(CONTINUE)] if is_open else [])
        return self._turns

    def _reply(self, message: Message, *, with_reasoning: bool) -> list[Block]:
        blocks = blocks_of(message, self.dialect, self._issuer)
        kept = None if blocks is None else self._kept(message, blocks, with_reasoning=with_reasoning)
        return self._neutral(message) if kept is None else kept

    @abstractmethod
    def _kept(self, message: Message, blocks: list[Block], *, with_reasoning: bool) -> list[Block] | None:
        """Return the stored blocks as they are sent back; None if the neutral form must be sent."""

    @abstractmethod
    def _neutral(self, message: Message) -> list[Block]:
        """Return a reply from its neutral form."""

    @abstractmethod
    def _result(self, message: Message) -> Block:
        """Return the result of a call."""

    def _add(self, role: str, blocks: Sequence[Block]) -> None:
        if blocks and self._turns and self._turns[-1]["role"] == role:
            self._turns[-1][self.content] += blocks
        elif blocks:
            self._turns.append({"role": role, self.content: list(blocks)})


def split_instructions(request: ModelRequest) -> tuple[str, Sequence[Message]]:
    """Return the system prompt with the system messages that open the conversation, and the rest of it."""
    first = next((i for i, m in enumerate(request.messages) if m["role"] not in ("system", "developer")), None)
    opening = request.messages[:first]
    texts = [request.instructions, *(m["content"] for m in opening if isinstance(m.get("content"), str))]
    text: str = sendable("\n\n".join(text for text in texts if text))
    return text, request.messages[len(opening) :]
