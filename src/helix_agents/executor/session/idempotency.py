"""Idempotency keys: the same request, sent again, gets the run that it started before.

The key needs no record of its own. It is part of the run's id, `run-<key>-<request>-<random>`, the first two as digests
(the last tells two claims for the same request apart). The claim that starts a run writes that id into the session in
the one commit that also holds the user's message (`suspended_step_id`). So the key is stored exactly if the message is,
on every backend: a crash comes before both or after both. A run that goes on for one which died before it had a record
names it (`began_as`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from ...clock import random_id
from ...codec import Json, encode
from ...errors import IdempotencyConflict, InvalidArgument
from ...ids import MAX_ID_LENGTH, ensure_id
from ...stores.state.contract import StateStore
from ...types import RunRecord, SessionState

DIGEST_BYTES = 12


class KeyedRun(NamedTuple):
    """The run that a key stands for."""

    key: str
    prefix: str
    """What the ids of all runs of this key begin with."""
    request_prefix: str
    """What they begin with if the request was this one."""

    def new_run_id(self) -> str:
        """The id of a run that such a request starts."""
        return self.request_prefix + random_id()[:12]


def session_of_key(key: str, user_id: str | None) -> str:
    """The session of a request that names none: the same one when it is sent again."""
    return f"session-{_digest(['session', user_id, _checked(key)])}"


def run_of_key(session_id: str, key: str, request: Sequence[Json]) -> KeyedRun:
    """The run that a request with this key has started, or is going to start."""
    prefix = f"run-{_digest(['run', session_id, _checked(key)])}-"
    return KeyedRun(key, prefix, f"{prefix}{_digest(list(request))}-")


async def find_run(store: StateStore, session: SessionState, keyed: KeyedRun) -> RunRecord | str | None:
    """The run's record; its id, if it was claimed and has no record (yet); None if the key is new.

    Raises `IdempotencyConflict` if the key came with another request before.
    """
    for run in await store.list_runs(session.session_id):
        for run_id in (run.run_id, *run.metadata.get("began_as", ())):
            if _matches(session, keyed, run_id):
                return run
    claimed = claimed_run(session)
    return claimed if claimed is not None and _matches(session, keyed, claimed) else None


def claimed_run(session: SessionState) -> str | None:
    """The run that the session was last claimed for."""
    return session.suspended_step_id.rpartition("-")[0] if session.suspended_step_id else None


def _matches(session: SessionState, keyed: KeyedRun, run_id: str) -> bool:
    if not run_id.startswith(keyed.prefix):
        return False
    if not run_id.startswith(keyed.request_prefix):
        raise IdempotencyConflict(session.session_id, keyed.key)
    return True


def _checked(key: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_ID_LENGTH:
        raise InvalidArgument(f"An idempotency key is a text of 1 to {MAX_ID_LENGTH} characters, not {key!r:.60}.")
    return key


def _digest(value: Json) -> str:
    return hashlib.blake2b(encode(value).encode(), digest_size=DIGEST_BYTES).hexdigest()


def chosen_session(session_id: str | None, idempotency_key: str | None, user_id: str | None) -> str:
    """The session that a request is for: the one it names, the one its key chooses, or a new one."""
    if session_id is not None:
        return ensure_id(session_id, "session_id")
    return f"session-{random_id()}" if idempotency_key is None else session_of_key(idempotency_key, user_id)
