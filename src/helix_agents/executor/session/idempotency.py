"""Idempotency keys: a repeated request gets the run that it started before.

The run record stores the key and a digest of the request, in the same commit as the user's message. A request without
a session id gets a random one, which a small stream stores: the stream's id is derived from the user and the key, and
only its first chunk counts, so two concurrent requests get the same session.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from ...clock import random_id
from ...codec import Json, encode
from ...errors import IdempotencyConflict, InvalidArgument
from ...ids import MAX_ID_LENGTH
from ...streams.contract import StreamManager
from ...types import RunRecord

DIGEST_BYTES = 16


class KeyedRequest(NamedTuple):
    """An idempotency key and the digest of the request that came with it."""

    key: str
    digest: str


def keyed_request(key: str, fingerprint: list[Json]) -> KeyedRequest:
    """Return the key with the digest of its request. Raises `InvalidArgument`."""
    return KeyedRequest(_checked(key), _digest(fingerprint))


def find_run(session_id: str, runs: list[RunRecord], keyed: KeyedRequest) -> RunRecord | None:
    """Return the run that the key started; None if the key is new.

    Raises `IdempotencyConflict` if the key was used with a different request.
    """
    for run in runs:
        if run.idempotency_key == keyed.key:
            if run.request_digest != keyed.digest:
                raise IdempotencyConflict(session_id, keyed.key)
            return run
    return None


async def session_of_key(streams: StreamManager, key: str, user_id: str | None) -> str:
    """Return the session of a request that names none: the same one when the request is repeated."""
    stream_id = f"helix/keys/{_digest([user_id, _checked(key)])}"
    found = await streams.get_all_chunks(stream_id) if await streams.get_stream_info(stream_id) else []
    if not found:
        async with await streams.create_writer(stream_id, "key", "key") as writer:
            data = {"session_id": f"session-{random_id()}"}
            await writer.write({"type": "custom", "name": "session", "data": data, "step": 0})
        found = await streams.get_all_chunks(stream_id)
    return str(found[0].chunk["data"]["session_id"])


def new_session_id() -> str:
    """Return the id of a session that the caller did not name."""
    return f"session-{random_id()}"


def _checked(key: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_ID_LENGTH:
        raise InvalidArgument(f"An idempotency key must be a string of 1 to {MAX_ID_LENGTH} characters: {key!r:.60}")
    return key


def _digest(value: Json) -> str:
    return hashlib.blake2b(encode(value).encode(), digest_size=DIGEST_BYTES).hexdigest()
