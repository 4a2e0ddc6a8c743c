"""One session of the model, and what every change does to it. Plain values and deep copies, no store."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from ....errors import (
    CheckpointNotFound,
    IllegalTransition,
    InvalidArgument,
    LeaseConflict,
    SessionNotFound,
    VersionConflict,
)
from ....lifecycle import RUN_TERMINAL, SESSION_TRANSITIONS
from ....messages import Message
from ....stores.state.commit import RunChange
from ....types import Checkpoint, CheckpointMeta, ForkOrigin, RunRecord, SessionState, StagedChanges, SubSessionRef
from .branches import Branches, End
from .merge import naive_merge

IDENTITY = ("session_id", "created_at", "incarnation", "forked_from")
KEPT = (*IDENTITY, "version", "updated_at", "interrupt_flag", "owner_epoch")
"""Fields of a session that `save_state` and `restore_checkpoint` never take from their argument."""
LABELS = ("stream_id", "parent_session_id", "root_session_id", "expires_at", "user_id", "tags", "metadata")
"""Fields that are the same on every branch."""


class Session:
    """Everything that is stored for one session."""

    def __init__(self, state: SessionState) -> None:
        self.state = state
        self.messages: list[Message] = []
        self.staged: dict[str, dict[tuple[str, str], StagedChanges]] = {}
        self.refs: dict[str, SubSessionRef] = {}
        self.runs: list[RunRecord] = []
        self.due_at: int | None = None
        self.checkpoints: list[Checkpoint] = []
        self.branches = Branches()

    def require_version(self, expected_version: int | None) -> None:
        """Raise unless the session is at this version; None matches any."""
        state = self.state
        if expected_version not in (None, state.version):
            raise VersionConflict(expected_version or 0, state.version, state.status, state.session_id)

    def require_identity(self, state: SessionState, *, guarded: bool) -> None:
        """Raise if the state belongs to another session, or would change a fixed field."""
        given = {"incarnation": state.incarnation, "created_at": state.created_at}
        claims = {name: value for name, value in given.items() if value}
        for name, value in {**claims, "agent_type": state.agent_type, "user_id": state.user_id}.items():
            if value != getattr(self.state, name):
                if name == "incarnation" and guarded:
                    raise SessionNotFound(state.session_id)
                raise InvalidArgument(f"{name} cannot change.")

    def claim(self, new_epoch: int | None) -> None:
        """Raise the owner epoch, if a new one is given."""
        if new_epoch is not None:
            self.state = msgspec.structs.replace(self.state, owner_epoch=new_epoch)

    def require_transition(self, status: str) -> None:
        """Raise unless the lifecycle lets the session go to this status."""
        if status not in SESSION_TRANSITIONS[self.state.status]:
            raise IllegalTransition("session", self.state.status, status, self.state.session_id)

    def bump(self, **changes: Any) -> int:
        """Change fields, increment the version and return it."""
        self.state = msgspec.structs.replace(self.state, version=self.state.version + 1, **changes)
        return self.state.version

    def wait(self, now: int, *, by_status: bool = False) -> None:
        """Record when a worker can continue the session, if it waits.

        `by_status`: only its status was changed, which pauses a session without a wake-up time.
        """
        state = self.state
        self.due_at = None
        if state.parent_session_id is not None:
            return
        if state.status == "paused" and state.wake_at is not None and not by_status:
            self.due_at = max(now, state.wake_at)
        if not state.status.startswith("suspended"):
            return
        open_calls = [call.deadline_at for call in state.pending_client_tool_calls.values() if not call.submitted_at]
        for wait in state.suspended_awaiting_children.values():
            if set(wait.tool_call_ids) - set(state.completed_client_tool_calls):
                open_calls.append(wait.deadline_at)
        moments = [state.wake_at]
        if open_calls and None not in open_calls:
            moments.append(max(each or 0 for each in open_calls))
        if not open_calls and state.wake_at is None:
            moments = [now]
        given = [each for each in moments if each is not None]
        self.due_at = max(now, min(given)) if given else None

    def overwrite(self, state: SessionState, now: int) -> None:
        """Replace the session's fields, as `save_state` does."""
        kept = {name: getattr(self.state, name) for name in KEPT}
        if state.custom_state is None:
            kept["custom_state"] = self.state.custom_state
        self.state = msgspec.structs.replace(copy.deepcopy(state), **kept)
        self.bump()
        self.wait(now)

    def stage(self, step_id: str, calls: Sequence[StagedChanges], now: int) -> None:
        """Store rows until their step commits; staging the same call again replaces its row."""
        rows = self.staged.setdefault(step_id, {})
        for call in calls:
            rows[call.kind, call.tool_call_id] = msgspec.structs.replace(copy.deepcopy(call), staged_at=now)

    def rows_of(self, step_id: str) -> list[StagedChanges]:
        """Return the staged rows of a step, in the order of the calls."""
        rows = self.staged.get(step_id, {}).values()
        return sorted(rows, key=lambda row: (row.index, row.kind, row.tool_call_id))

    def promote(self, step_id: str) -> list[str]:
        """Merge a step's staged writes into custom state; return whether writes were lost, as warnings."""
        rows = self.rows_of(step_id)
        self.staged.pop(step_id, None)
        merged, lost = naive_merge(self.state.custom_state, [list(row.writes.ops) for row in rows])
        self.state = msgspec.structs.replace(self.state, custom_state=merged)
        return {True: ["lost"], None: ["perhaps"], False: []}[lost]

    def begin(self, run: RunRecord | None, now: int) -> RunRecord | None:
        """Add a run; without a given turn it gets the one after the latest run's."""
        if run is None:
            return None
        ended = {"status": "running", "step_count": 0, "completed_at": None, "error": None, "output": None}
        made = msgspec.structs.replace(
            copy.deepcopy(run),
            session_id=self.state.session_id,
            turn=run.turn or 1 + (self.runs[-1].turn if self.runs else 0),
            started_at=now,
            **ended,
        )
        self.runs.append(made)
        return made

    def change_run(self, change: RunChange | None, now: int) -> None:
        """Change a run of this session; raise unless its status and lease are as they were read."""
        if change is None:
            return
        seen, wanted = change
        for place, run in enumerate(self.runs):
            if (run.run_id, run.status, run.lease_until) == (seen.run_id, seen.status, seen.lease_until):
                new = {name: getattr(wanted, name) for name in RunRecord.__struct_fields__}
                # Compared as strings: in Python, `1` equals `True`.
                new = {k: copy.deepcopy(value) for k, value in new.items() if repr(value) != repr(getattr(seen, k))}
                if wanted.status in RUN_TERMINAL and wanted.completed_at is None:
                    new["completed_at"] = now
                self.runs[place] = msgspec.structs.replace(run, **new)
                return
        raise LeaseConflict(self.state.session_id, seen.run_id)

    def make_checkpoint(self, meta: CheckpointMeta, now: int, number: int) -> Checkpoint:
        """Store the session as it is now; `number` makes the id unique."""
        session_id = self.state.session_id
        made = Checkpoint(
            checkpoint_id=f"cpv1-{session_id}-s{meta.step_count}-t{now}-{number:06x}",
            session_id=session_id,
            step_id=meta.step_id,
            step_count=meta.step_count,
            stream_sequence=meta.stream_sequence,
            kind=meta.kind,
            request=copy.deepcopy(meta.request),
            message_count=len(self.messages),
            status=self.state.status,
            version=self.state.version,
            created_at=now,
            # The flag and the epoch are not part of a commit.
            state=msgspec.structs.replace(copy.deepcopy(self.state), interrupt_flag=None, owner_epoch=0),
        )
        self.checkpoints.append(made)
        return made

    def find_checkpoint(self, checkpoint_id: str) -> tuple[int, Checkpoint]:
        """Return a checkpoint and its position among the others."""
        for place, made in enumerate(self.checkpoints):
            if made.checkpoint_id == checkpoint_id:
                return place, made
        raise CheckpointNotFound(self.state.session_id, checkpoint_id)

    def present(self) -> End:
        """Return the current conversation, for a client that returns to it."""
        status = "interrupted" if self.state.status == "active" else self.state.status
        state = msgspec.structs.replace(self.state, status=status)
        return End((), *copy.deepcopy((self.messages, self.checkpoints, self.staged, state)))

    def go_back(self, place: int, message_count: int) -> None:
        """Restore the checkpoint at a position, with this many messages."""
        made = self.checkpoints[place]
        counted = min(made.message_count, message_count)
        self.checkpoints[place:] = [msgspec.structs.replace(made, message_count=counted)]
        del self.messages[message_count:]
        self.staged = {}
        self.state = msgspec.structs.replace(self.state, custom_state=copy.deepcopy(made.state.custom_state))

    def come_back(self, ends: list[End], now: int) -> None:
        """Restore the last of these ends."""
        self.branches.arrive(ends)
        end = ends[-1]
        self.messages, self.checkpoints, self.staged = end.messages, end.checkpoints, end.staged
        kept = {name: getattr(self.state, name) for name in (*KEPT, *LABELS)}
        self.overwrite(msgspec.structs.replace(end.state, **kept), now)

    def forked(self, new_session_id: str, checkpoint_id: str | None, now: int, incarnation: str) -> Session:
        """Return an independent copy of this session as it is now, or was at a checkpoint."""
        state, messages = self.state, self.messages
        if checkpoint_id is not None:
            made = self.find_checkpoint(checkpoint_id)[1]
            state, messages = made.state, messages[: made.message_count]
        status = "interrupted" if state.status == "active" and messages else state.status
        fork = Session(
            msgspec.structs.replace(
                copy.deepcopy(state),
                session_id=new_session_id,
                stream_id=new_session_id,
                parent_session_id=None,
                root_session_id=None,
                interrupt_flag=None,
                version=1,
                created_at=now,
                updated_at=now,
                incarnation=incarnation,
                owner_epoch=0,
                status=status,
                forked_from=ForkOrigin(self.state.session_id, checkpoint_id, len(messages)),
            )
        )
        fork.messages = copy.deepcopy(messages)
        fork.wait(now)
        return fork
