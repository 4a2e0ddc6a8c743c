"""The history part of the model: checkpoints, restore, fork, branches."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence

import msgspec

from ....errors import InvalidArgument, SessionExists
from ....messages import Message
from ....stores.state.commit import RunChange
from ....types import (
    Branch,
    BranchPoint,
    Checkpoint,
    CheckpointMeta,
    Committed,
    Owner,
    Page,
    RunRecord,
    SessionState,
)
from .runs import RunModel
from .session import Session


class HistoryModel(RunModel):
    """Checkpoints as whole copies of a session, branches as whole copies of a conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)
        self.incarnation: str | None = None
        """The incarnation of the next session; a walk sets it, so that both sides agree."""

    def born(self) -> str:
        """Return the incarnation of a new session."""
        return self.incarnation or f"incarnation-{next(self.numbers)}"

    def _at_version(self, session_id: str, expected_version: int | None, owner: Owner | None) -> Session:
        """Return the session if the guards hold; they are checked before anything in its history is looked up."""
        return self._guarded(session_id, expected_version, None if owner is None else Owner(owner.incarnation))

    # -- checkpoints

    async def list_checkpoints(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Page[Checkpoint]:
        newest_first = self._session(session_id).checkpoints[::-1]
        items = [
            msgspec.structs.replace(it, state=msgspec.structs.replace(it.state, custom_state=None))
            for it in newest_first[offset : offset + limit]
        ]
        return Page(items, len(newest_first), offset, limit, len(newest_first) > offset + limit)

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        found = self.sessions.get(session_id)
        made = [it for it in found.checkpoints if it.checkpoint_id == checkpoint_id] if found else []
        return copy.deepcopy(made[0]) if made else None

    async def get_latest_checkpoint(self, session_id: str) -> Checkpoint | None:
        found = self.sessions.get(session_id)
        return copy.deepcopy(found.checkpoints[-1]) if found and found.checkpoints else None

    async def restore_checkpoint(
        self,
        session_id: str,
        checkpoint_id: str,
        *,
        append_messages: Sequence[Message] = (),
        expected_version: int | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
    ) -> int:
        place, made = self._at_version(session_id, expected_version, owner).find_checkpoint(checkpoint_id)
        session = self._guarded(session_id, expected_version, owner, new_epoch)
        session.change_run(change_run, self.now)
        session.claim(new_epoch)
        session.overwrite(made.state, self.now)
        session.messages[made.message_count :] = copy.deepcopy(list(append_messages))
        session.checkpoints = session.checkpoints[: place + 1]
        session.branches.cut(place + 1)
        session.staged = {}
        return session.state.version

    async def fork_session(
        self,
        session_id: str,
        new_session_id: str,
        *,
        checkpoint_id: str | None = None,
        append_messages: Sequence[Message] = (),
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
    ) -> SessionState:
        made = self._session(session_id).forked(new_session_id, checkpoint_id, self.now, self.born())
        labels = {"metadata": metadata, "tags": None if tags is None else tuple(tags)}
        given = {name: copy.deepcopy(value) for name, value in labels.items() if value is not None}
        made.state = msgspec.structs.replace(made.state, **given)
        if new_session_id in self.sessions:
            raise SessionExists(new_session_id)
        made.messages += copy.deepcopy(list(append_messages))
        self.sessions[new_session_id] = made
        return copy.deepcopy(made.state)

    # -- branches

    async def list_branches(self, session_id: str) -> list[Branch]:
        session = self._session(session_id)
        return session.branches.listed(len(session.messages))

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
        session = self._at_version(session_id, expected_version, owner)
        place, _ = session.find_checkpoint(point.checkpoint_id)
        earlier = session.checkpoints[place - 1].message_count if place else 0
        if point.message_count > len(session.messages) or earlier > point.message_count:
            raise InvalidArgument("The checkpoint does not fit.")
        self._guarded(session_id, expected_version, owner, new_epoch)
        session.require_identity(state, guarded=True)
        self._refuse_taken(run)
        session.change_run(change_run, self.now)
        session.claim(new_epoch)
        active = session.branches.leave(session.present(), point, place + 1)
        session.go_back(place, point.message_count)
        session.overwrite(msgspec.structs.replace(state, step_count=checkpoint.step_count), self.now)
        session.messages.extend(copy.deepcopy(list(append_messages)))
        made = session.make_checkpoint(checkpoint, self.now, next(self.numbers))
        session.begin(run, self.now)
        counts = session.state.version, len(session.messages)
        return Committed(made.checkpoint_id, *counts, branch_id=active)

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
        session = self._at_version(session_id, expected_version, owner)
        ends = session.branches.walk(session.present(), branch_id)
        if not ends:
            return session.state.version
        self._guarded(session_id, expected_version, owner, new_epoch)
        session.change_run(change_run, self.now)
        session.claim(new_epoch)
        session.come_back(ends, self.now)
        session.messages.extend(copy.deepcopy(list(append_messages)))
        return session.state.version
