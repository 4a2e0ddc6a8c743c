"""What a refusal means: a backend answers with a reason or with None, a user gets an error of our own tree."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from ...errors import InvalidArgument, SessionExists, SessionNotFound, VersionConflict
from .commit import Applied, Commit, GuardFailed
from .verbs import StateStoreVerbs

Found = TypeVar("Found")


class ExplainingStore(StateStoreVerbs):
    """The part of the state store that says why something was not done."""

    async def _write(self, commit: Commit) -> Applied:
        """Make the commit, or say why not."""
        try:
            applied, _ = await self._apply(commit)
        except GuardFailed as failed:
            await self._explain(commit, failed)
        return applied

    async def _explain(self, commit: Commit, failed: GuardFailed) -> NoReturn:
        """Turn a refused commit into the error of our tree that says why."""
        if failed.reason == "exists":
            raise SessionExists(commit.session_id) from failed
        if failed.reason == "run" and commit.run is not None:
            raise InvalidArgument(f"Run {commit.run.run_id!r} exists already: every run needs a new id.") from failed
        if failed.reason == "version" and commit.expected_version is not None:
            stored = await self._read_session(commit.session_id, custom_state=False)
            if stored is not None:
                raise VersionConflict(
                    commit.expected_version, stored.state.version, stored.state.status, commit.session_id
                ) from failed
        if failed.reason in ("missing", "version"):
            raise SessionNotFound(commit.session_id) from failed
        raise failed


def require_session(session_id: str, answer: Found | None) -> Found:
    """The answer of a verb, or `SessionNotFound` if it is None."""
    if answer is None:
        raise SessionNotFound(session_id)
    return answer
