"""Webhooks: the receivers of events, signatures and the HTTP request. Knows neither stores nor runs.

Requests follow the Standard Webhooks convention, so that receivers can verify them with any of its libraries: the
signature covers the id, the time and the body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from ...errors import InvalidArgument
from ...tools.calling import in_thread

EventType = Literal["run.completed", "run.failed", "run.suspended"]
EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)
MIN_SECRET_BYTES = 16
SECRET_PREFIX = "whsec_"
REQUEST_SECONDS = 10.0


class Webhook(msgspec.Struct, frozen=True):
    """A receiver of events. `secret` signs the requests; `whsec_...` is base64, anything else is used as is.

    `events`: the event types it receives; all by default.
    """

    url: str
    secret: str
    events: Sequence[EventType] = EVENT_TYPES

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise InvalidArgument("The URL of a webhook must be http:// or https://, without a user name.")
        if unknown := set(self.events) - set(EVENT_TYPES):
            raise InvalidArgument(f"Unknown event {sorted(unknown)[0]!r}. Known events: {', '.join(EVENT_TYPES)}.")
        if len(secret_bytes(self.secret)) < MIN_SECRET_BYTES:
            raise InvalidArgument(f"The secret of a webhook must have at least {MIN_SECRET_BYTES} bytes.")

    def __repr__(self) -> str:
        return f"<webhook {urlsplit(self.url).hostname}>"

    @property
    def name(self) -> str:
        """A stable name derived from the URL."""
        return hashlib.blake2b(self.url.encode(), digest_size=6).hexdigest()


Post = Callable[[str, Mapping[str, str], bytes, float], Awaitable[int]]
"""Sends a request (URL, headers, body, timeout in seconds) and returns the status of the response. Does not follow
redirects. Raises `OSError`."""


def secret_bytes(secret: str) -> bytes:
    """Decode a secret to its key. Raises `InvalidArgument`."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidArgument(f"A secret that starts with {SECRET_PREFIX!r} must continue in base64.") from None


def signature(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of a request's signature header. `timestamp`: in seconds."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret_bytes(secret), signed, "sha256")).decode()


def headers_of(webhook: Webhook, event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a request."""
    return {
        "Content-Type": "application/json",
        "User-Agent": "helix-agents",
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(webhook.secret, event_id, timestamp, body),
    }


async def post_in_thread(url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> int:
    """Send a request from a thread. A `Post`."""
    return await in_thread(lambda: _post(url, headers, body, timeout_seconds))


def _post(url: str, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> int:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", path, body, dict(headers))
        return connection.getresponse().status
    except http.client.HTTPException as error:
        raise OSError(f"invalid HTTP response: {error!r}") from error
    finally:
        connection.close()
