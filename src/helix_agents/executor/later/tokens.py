"""Tokens of deferred calls: signed, bound to one incarnation of a session, one call and its deadline. No I/O."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from ...codec import encode
from ...errors import InvalidArgument
from ...tools.deferred import DeferredCall
from ...types import PendingClientToolCall, SessionState

MIN_SECRET_CHARS = 16
MAX_TOKEN_CHARS = 4_000


class HookTarget(msgspec.Struct, frozen=True, array_like=True):
    """The call that a token completes."""

    session_id: str
    incarnation: str
    tool_call_id: str
    deadline_at: int | None = None


class HookTokens:
    """Signs and reads tokens. The first secret signs; the others are still accepted."""

    def __init__(self, secret: str | Sequence[str] | None, public_url: str | None) -> None:
        secrets = [secret] if isinstance(secret, str) else list(secret or ())
        if any(not isinstance(each, str) or len(each) < MIN_SECRET_CHARS for each in secrets):
            raise InvalidArgument(f"A secret must be a string of at least {MIN_SECRET_CHARS} characters.")
        if public_url is not None and urlsplit(public_url).scheme not in ("http", "https"):
            raise InvalidArgument("public_url must start with http:// or https://.")
        self._keys = [each.encode() for each in secrets]
        self._public_url = None if public_url is None else public_url.rstrip("/")

    def deferred_call(self, session: SessionState, pending: PendingClientToolCall) -> DeferredCall:
        """Return the `DeferredCall` that a tool gets after it has deferred a call."""
        target = HookTarget(session.session_id, session.incarnation, pending.tool_call_id, pending.deadline_at)
        token = self.sign(target) if self._keys else None
        return DeferredCall(session.session_id, pending.tool_call_id, pending.deadline_at, token, self._public_url)

    def sign(self, target: HookTarget) -> str:
        """Return the token of a call."""
        payload = encode(msgspec.to_builtins(target)).encode("utf-8", "surrogatepass")
        return f"{_text(payload)}.{_text(_digest(self._keys[0], payload))}"

    def read(self, token: str) -> HookTarget | None:
        """Return the call that a token was signed for; None if none of the secrets signed it."""
        payload, _, signature = token.partition(".")
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            signed, given = _bytes(payload), _bytes(signature)
        except (binascii.Error, ValueError):
            return None
        if not any(hmac.compare_digest(_digest(key, signed), given) for key in self._keys):
            return None
        return msgspec.convert(msgspec.json.decode(signed), HookTarget)


def _digest(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, b"helix deferred call\n" + payload, "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
