"""The provider's own form of a reply, stored next to the neutral message and sent back unchanged.

A reply is stored twice: as `content`, `thinking` and `tool_calls`, which every model and client understands, and as
`native`, which only its issuer gets back. The neutral form is authoritative: if a message no longer matches the digest
in `native`, because it was edited or redacted, the neutral form is sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

import msgspec

from ..codec import encode, ensure_json
from ..errors import NotSerializable
from ..messages import Message

Block = dict[str, Any]

PORTABLE_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The tool call ids that every provider accepts."""


class Native(TypedDict):
    """The member `native` of an assistant message. Only the adapter of its dialect looks inside the blocks."""

    dialect: str
    """The format of the blocks: `anthropic`, `openai`, `google`."""
    issuer: str
    """The provider whose keys verify the signatures, with its host if that is not the provider's own."""
    model: str
    """The model that replied, as the provider names it."""
    blocks: list[Block]
    """The whole reply, in order, exactly as received."""
    covers: NotRequired[str]
    """Digest of the neutral form when it was stored."""
    cut: NotRequired[bool]
    """The provider rejected earlier reasoning when it gave this reply: reasoning before it is not sent again."""


def covered(message: Message) -> str:
    """Return the digest of what a message says and calls."""
    calls = [
        [call["name"], call.get("invalid_arguments") or call["arguments"]] for call in message.get("tool_calls", ())
    ]
    return _digest(encode([message.get("content") or "", calls]))


def with_native(message: Message, native: Native | None) -> Message:
    """Return the message with the provider's form of it; unchanged if there is none."""
    return message if native is None else {**message, "native": {**native, "covers": covered(message)}}


def blocks_of(message: Message, dialect: str, issuer: str) -> list[Block] | None:
    """Return the blocks that may go back to this issuer; None if the neutral form must be sent."""
    native = _native_from(message, dialect, issuer)
    if native is None or message.get("interrupted") or native.get("covers") != covered(message):
        return None
    return native["blocks"] or None


def first_with_reasoning(messages: Sequence[Message], dialect: str, issuer: str) -> int:
    """Return the index of the first message whose reasoning may be sent to this issuer."""
    for index in range(len(messages) - 1, -1, -1):
        native = _native_from(messages[index], dialect, issuer)
        if native is not None and native.get("cut"):
            return index
    return 0


def _native_from(message: Message, dialect: str, issuer: str) -> Native | None:
    match message.get("native"):
        case {"dialect": str(spoken), "issuer": str(by), "blocks": list()} if (spoken, by) == (dialect, issuer):
            return cast(Native, message["native"])
    return None


class CallIds:
    """The ids under which the tool calls of one request are sent.

    Stored ids are ours: those of sub-agents carry a mark, and repeated ones are renamed. Blocks keep the provider's
    ids, so calls are paired by position and each result goes out under the id of its call.
    """

    def __init__(self) -> None:
        self._sent: dict[str, str] = {}
        self._taken: set[str] = set()

    def adopt(self, calls: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> bool:
        """Use the provider's `ids` for `calls`; False, and no change, if they do not pair up or repeat."""
        if len(ids) != len(calls) or len({*ids}) < len(ids) or not self._taken.isdisjoint(ids):
            return False
        for call, id in zip(calls, ids, strict=True):
            self._use(call["id"], id)
        return True

    def of(self, call_id: str) -> str:
        """Return the id to send for a stored call and its result: the adopted one, else its own if it is portable."""
        if call_id not in self._sent:
            own = PORTABLE_ID.fullmatch(call_id) and call_id not in self._taken
            self._use(call_id, call_id if own else f"call_{_digest(call_id)}")
        return self._sent[call_id]

    def adopted(self, call_id: str) -> str | None:
        """Return the provider's id of a call, if it gave one."""
        return self._sent.get(call_id)

    def _use(self, call_id: str, id: str) -> None:
        self._sent[call_id] = id
        self._taken.add(id)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def can_be_sent_back(blocks: list[Block]) -> bool:
    """Report whether blocks survive storage and a request: a lone surrogate or a huge integer does not."""
    try:
        ensure_json(blocks)
        msgspec.json.encode(blocks)
    except (NotSerializable, ValueError, OverflowError):  # UnicodeEncodeError is a ValueError
        return False
    return True
