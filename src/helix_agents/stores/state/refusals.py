"""Translate a backend's reason for rejecting a write into an error."""

from __future__ import annotations

from typing import TypeVar

from ...errors import (
    EpochConflict,
    InvalidArgument,
    LeaseConflict,
    SessionExists,
    SessionNotFound,
    StoreUnavailable,
    VersionConflict,
    shown,
)
from ...lifecycle import illegal_transition
from ...retry import CONFLICT
from ...types import SessionState
from .commit import Applied, Commit, CommitRefused, Identity
from .verbs import StateStoreVerbs

Found = TypeVar("Found")


class ExplainingStore(StateStoreVerbs):
    """The part of the state store that explains rejected writes."""

    async def _write(self, commit: Commit) -> Applied:
        """Apply the commit, or raise the error that explains why not."""
        for _ in CONFLICT.attempts():
            try:
                applied, _ = await self._apply(commit)
            except CommitRefused as failed:
                await self._explain(commit, failed)
                continue
            return applied
        raise StoreUnavailable(f"The status of session {commit.session_id!r} changes too fast to be set: try again.")

    async def _explain(self, commit: Commit, failed: CommitRefused) -> None:
        """Raise the error that explains a rejected commit.

        Returns only if the reason is gone already: the session has left the status that forbade the change.
        """
        if failed.reason == "exists":
            raise SessionExists(commit.session_id) from failed
        if failed.reason == "lease" and commit.change_run is not None:
            raise LeaseConflict(commit.session_id, commit.change_run.seen.run_id) from failed
        if failed.reason == "run" and commit.run is not None:
            raise InvalidArgument(f"Run {commit.run.run_id!r} exists already: every run needs a new id.") from failed
        if failed.reason in ("version", "epoch", "identity"):
            stored = await self._read_session(commit.session_id, custom_state=False)
            if stored is not None:
                _explain_session(commit, stored.state, failed)
                return
        if failed.reason in ("missing", "version", "epoch", "identity"):
            raise SessionNotFound(commit.session_id) from failed
        raise failed


def _explain_session(commit: Commit, found: SessionState, failed: CommitRefused) -> None:
    expected, status, owner = commit.expected_version, found.status, commit.owner
    if owner is not None and owner.incarnation != found.incarnation:
        raise SessionNotFound(commit.session_id) from failed
    if failed.reason == "epoch":
        expected_epoch = None if owner is None else owner.epoch
        if expected_epoch in (None, found.owner_epoch) and commit.new_epoch is not None:
            expected_epoch = commit.new_epoch - 1
        raise EpochConflict(commit.session_id, expected_epoch or 0, found.owner_epoch) from failed
    if failed.reason == "identity":
        _explain_identity(commit, found, failed)
        return
    if expected is not None and (expected != found.version or not commit.allowed_from):
        raise VersionConflict(expected, found.version, status, commit.session_id) from failed
    if status not in commit.allowed_from:
        wanted = commit.status or (status if commit.state is None else commit.state.status)
        raise illegal_transition("session", commit.session_id, status, wanted) from failed


def _explain_identity(commit: Commit, found: SessionState, failed: CommitRefused) -> None:
    assert commit.state is not None
    field = Identity.of(commit.state).difference(found)
    if field == "incarnation" and (commit.expected_version is not None or commit.owner is not None):
        raise SessionNotFound(commit.session_id) from failed
    if field is not None:
        raise InvalidArgument(
            f"{field} of session {commit.session_id!r} is {shown(getattr(found, field))} and cannot be "
            f"{shown(getattr(commit.state, field))}: load the session again."
        ) from failed


def require_session(session_id: str, answer: Found | None) -> Found:
    """Return the result of a verb. Raises `SessionNotFound` if it is None."""
    if answer is None:
        raise SessionNotFound(session_id)
    return answer
