"""Move between branches of a conversation (regenerate, edit, switch) by the verbs of a backend.

`branches.py` decides what moves; this module reads the data and writes one commit, guarded by the version it was
computed from. If the commit is rejected, it reads again, as a restore does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...codec import ensure_count
from ...errors import CheckpointNotFound, InvalidArgument
from ...ids import ensure_id, ensure_printable
from ...messages import Message
from ...types import Branch, BranchPoint, CheckpointMeta, Committed, Owner, RunRecord, SessionState
from . import validate
from .branches import BranchTree, Leaving
from .checkpoints import CheckpointingStore, at_rest
from .commit import Commit, RunChange, StoredCheckpoint, StoredSession
from .due import due_at
from .fields import fields_from_text, fields_to_text
from .refusals import require_session
from .runs import checked_change, with_run

_OF_THE_SESSION = (
    "stream_id",
    "parent_session_id",
    "root_session_id",
    "expires_at",
    "user_id",
    "tags",
    "metadata",
    "created_at",
    "incarnation",
    "forked_from",
)
"""Fields that are the same on every branch."""


class BranchingStore(CheckpointingStore):
    """The part of the state store that creates and switches branches."""

    async def list_branches(self, session_id: str) -> list[Branch]:
        ensure_id(session_id, "session_id")
        source = require_session(session_id, await self._read_session(session_id, custom_state=False))
        return (await self._tree(session_id)).listed(source.message_count)

    async def _tree(self, session_id: str) -> BranchTree:
        return BranchTree(require_session(session_id, await self._read_branches(session_id)))

    async def branch_session(
        self,
        session_id: str,
        point: BranchPoint,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        *,
        expected_version: int | None = None,
        run: RunRecord | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
    ) -> Committed:
        ensure_id(session_id, "session_id")
        _ensure_point(point)
        validate.ensure_state(session_id, state)
        validate.ensure_guards(expected_version=expected_version, owner=owner, new_epoch=new_epoch)
        if state.custom_state is not None:
            raise InvalidArgument("A branch starts with the custom state of its checkpoint: leave custom_state out.")
        texts, now, spare_id = validate.encoded_messages(append_messages), self._clock(), f"branch-{self._ids()}"
        state = msgspec.structs.replace(state, step_count=checkpoint.step_count)
        made = self._row_of_checkpoint(state, checkpoint, now)
        active: str | None = None

        async def make(source: StoredSession) -> Commit:
            nonlocal active
            row = await self._fork_row(session_id, point, source)
            tree, leaving = await self._tree(session_id), _leaving(source)
            changes, active = tree.leave(
                point, row.number, leaving, parted_at=row.created_at, now=now, spare_id=spare_id
            )
            return Commit(
                session_id=session_id,
                now=now,
                owner=owner or Owner(source.state.incarnation),
                new_epoch=new_epoch,
                expected_version=source.state.version,
                state=state,
                due_at=due_at(state, now),
                bump_version=True,
                branches=changes,
                messages=texts,
                checkpoint=made,
                run=with_run(session_id, run, now),
                change_run=checked_change(session_id, change_run, now),
            )

        gone = CheckpointNotFound(session_id, point.checkpoint_id)
        applied = await self._write_from_present(session_id, make, gone, expected_version, owner)
        return Committed(made.checkpoint_id, applied.version, applied.message_count, branch_id=active)

    async def _fork_row(self, session_id: str, point: BranchPoint, source: StoredSession) -> StoredCheckpoint:
        """Return the checkpoint of a point. It must be the first one with as many messages as are kept."""
        row = await self._checkpoint_row(session_id, point.checkpoint_id)
        earlier = await self._read_checkpoints(session_id, 1, source.checkpoint_count - row.number + 1)
        if point.message_count > source.message_count or any(
            each.message_count > point.message_count for each in (earlier or ([], 0))[0]
        ):
            raise InvalidArgument(
                f"Checkpoint {point.checkpoint_id!r} does not fit {point.message_count} messages: pass the first "
                "checkpoint with that message count."
            )
        return row

    async def switch_branch(
        self,
        session_id: str,
        branch_id: str,
        *,
        append_messages: Sequence[Message] = (),
        expected_version: int | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
    ) -> int:
        ensure_id(session_id, "session_id")
        ensure_printable(branch_id, "branch_id")
        validate.ensure_guards(expected_version=expected_version, owner=owner, new_epoch=new_epoch)
        texts = validate.encoded_messages(append_messages)

        async def make(source: StoredSession) -> Commit | None:
            tree, now, leaving = await self._tree(session_id), self._clock(), _leaving(source)
            way = [
                # A branch that has gone since then has changed the version: the commit will be refused.
                (each, await self._read_branch_state(session_id, each) or leaving.state)
                for each in tree.way_to(branch_id)
            ]
            if not way:
                return None
            state = on_branch(source.state, fields_from_text(way[-1][1]))
            return Commit(
                session_id=session_id,
                now=now,
                owner=owner or Owner(source.state.incarnation),
                new_epoch=new_epoch,
                expected_version=source.state.version,
                state=state,
                due_at=due_at(state, now),
                bump_version=True,
                branches=tree.switch(way, leaving),
                messages=texts,
                change_run=checked_change(session_id, change_run, now),
            )

        gone = InvalidArgument(
            f"Branch {branch_id!r} of session {session_id!r} starts after a message that no longer exists."
        )
        return (await self._write_from_present(session_id, make, gone, expected_version, owner)).version


def on_branch(session: SessionState, fields: SessionState) -> SessionState:
    """Return the session with the fields of another branch; fields that all branches share stay."""
    kept: dict[str, Any] = {name: getattr(session, name) for name in _OF_THE_SESSION}
    return msgspec.structs.replace(fields, **kept)


def _leaving(source: StoredSession) -> Leaving:
    return Leaving(source.message_count, fields_to_text(at_rest(source.state)))


def _ensure_point(point: object) -> None:
    if not isinstance(point, BranchPoint):
        raise InvalidArgument(f"point must be a BranchPoint, not {type(point).__name__}.")
    ensure_id(point.branch_id, "branch_id")
    ensure_printable(point.checkpoint_id, "checkpoint_id")
    ensure_count(point.message_count, "message_count")
    if point.message_id is not None:
        ensure_printable(point.message_id, "message_id")
