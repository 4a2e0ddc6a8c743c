"""Changes of a session's status alone: set it, or swap it if it is what the caller expects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...codec import Json, ensure_storable
from ...errors import InvalidArgument, SessionNotFound, StoreUnavailable
from ...ids import ensure_id
from ...lifecycle import SUSPENDED, ensure_status, guarded_sources, illegal_transition, may_become
from ...retry import CONFLICT
from ...types import Owner, SessionStatus, StatusConflict, StatusSwapped
from . import validate
from .commit import Commit, CommitRefused
from .due import due_at
from .plan import refused_owner
from .refusals import ExplainingStore, require_session


class StatusStore(ExplainingStore):
    """The part of the state store that changes statuses."""

    async def update_status(self, session_id: str, status: SessionStatus, *, owner: Owner | None = None) -> int:
        ensure_id(session_id, "session_id")
        ensure_status("session", status)
        validate.ensure_guards(owner=owner)
        if status in SUSPENDED:
            return await self._suspend(session_id, status, owner)
        commit = Commit(
            session_id=session_id,
            now=self._clock(),
            owner=owner,
            allowed_from=guarded_sources(status),
            status=status,
            bump_version=True,
        )
        return (await self._write(commit)).version

    async def _suspend(self, session_id: str, status: SessionStatus, owner: Owner | None) -> int:
        allowed = may_become("session", status)
        answer = await self._swap(session_id, allowed, status, {}, None, owner)
        if isinstance(answer, StatusSwapped):
            return answer.new_version
        stored = require_session(session_id, await self._read_session(session_id, custom_state=False))
        if (reason := refused_owner(owner, stored.state)) is not None:
            refused = CommitRefused(reason)
            await self._explain(Commit(session_id=session_id, now=self._clock(), owner=owner), refused)
        raise illegal_transition("session", session_id, answer.current_status, status)

    async def compare_and_set_status(
        self,
        session_id: str,
        expected: Iterable[SessionStatus] | SessionStatus,
        new: SessionStatus,
        *,
        interrupt_context: Json = None,
        error: str | None = None,
        failure_reason: str | None = None,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> StatusSwapped | StatusConflict:
        ensure_id(session_id, "session_id")
        ensure_status("session", new)
        ensure_storable(interrupt_context, "/interrupt_context")
        validate.ensure_optional(texts={"error": error, "failure_reason": failure_reason})
        validate.ensure_guards(expected_version=expected_version, owner=owner)
        if expected is None:
            raise InvalidArgument("compare_and_set_status needs at least one expected status.")
        given = {"interrupt_context": interrupt_context, "error": error, "failure_reason": failure_reason}
        wanted, allowed = validate.one_or_many(expected), may_become("session", new)
        also = {name: value for name, value in given.items() if value is not None}
        reachable = tuple(status for status in wanted if status in allowed)
        answer = await self._swap(session_id, reachable, new, also, expected_version, owner)
        if isinstance(answer, StatusConflict) and expected_version in (None, answer.current_version):
            found = answer.current_status
            if found in wanted and found not in allowed:
                raise illegal_transition("session", session_id, found, new)
        return answer

    async def _swap(
        self,
        session_id: str,
        expected: tuple[str, ...],
        new: SessionStatus,
        also: Mapping[str, Any],
        expected_version: int | None,
        owner: Owner | None,
    ) -> StatusSwapped | StatusConflict:
        """Swap the status. A suspension is made at the version whose questions were read."""
        for _ in CONFLICT.attempts():
            now, due, version = self._clock(), None, expected_version
            if new in SUSPENDED:
                stored = require_session(session_id, await self._read_session(session_id, custom_state=False))
                due = due_at(msgspec.structs.replace(stored.state, status=new), now)
                version = stored.state.version if version is None else version
            answer = await self._swap_status(
                session_id, expected, new, also=also, expected_version=version, owner=owner, due_at=due, now=now
            )
            if answer is None:
                raise SessionNotFound(session_id)
            moved = isinstance(answer, StatusConflict) and answer.current_version != version
            if not (moved and version is not None and expected_version is None):
                return answer
        raise StoreUnavailable(f"The status of session {session_id!r} changes too fast to be set: try again.")
