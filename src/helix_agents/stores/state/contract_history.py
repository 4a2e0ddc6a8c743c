"""The part of the state store's contract about runs, checkpoints, branches, and reading a whole session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ...codec import Json
from ...messages import Message
from ...types import (
    Branch,
    BranchPoint,
    Checkpoint,
    CheckpointMeta,
    Committed,
    Conversation,
    Owner,
    Page,
    RunRecord,
    RunStatus,
    SessionState,
)
from .commit import RunChange


class RunsAndCheckpoints(ABC):
    """Runs and checkpoints of sessions."""

    # -- everything at one moment

    @abstractmethod
    async def load_conversation(
        self, session_id: str, *, last: int | None = 50, offset: int | None = None, custom_state: bool = True
    ) -> Conversation | None:
        """Load a session, its `last` messages, its latest run and its latest checkpoint, from one snapshot.

        One round trip, whatever is asked for. `last=None`: all messages; `offset`: instead, those from that one on.
        Without `custom_state` it is None in the session, which then costs nothing. None if there is no session.
        """

    # -- runs

    @abstractmethod
    async def create_run(
        self,
        session_id: str,
        run_id: str,
        *,
        turn: int = 0,
        start_sequence: int = 0,
        metadata: Mapping[str, Json] | None = None,
        lease_until: int | None = None,
        expected_version: int | None = None,
        owner: Owner | None = None,
        **details: Any,
    ) -> RunRecord:
        """Start a run. Rejects a `run_id` that exists. `turn` 0: the next turn of the session.

        `details`: fields of `RunRecord` from `attempt` on. Does not change the version. Raises `VersionConflict` if
        `expected_version` is given and not the session's (S3).
        """

    @abstractmethod
    async def update_run_status(
        self,
        run_id: str,
        status: RunStatus,
        *,
        step_count: int | None = None,
        error: str | None = None,
        output: Json = None,
        completed_at: int | None = None,
        lease_until: int | None = None,
        start_sequence: int | None = None,
        metadata: Mapping[str, Json] | None = None,
        expected_status: RunStatus | None = None,
        owner: Owner | None = None,
    ) -> RunRecord:
        """Change a run. Raises `RunNotFound`, and `IllegalTransition` for a run that has ended otherwise.

        With `expected_status`, a run in any other status is not changed. `metadata` replaces that of the run.
        Fields of `RunRecord` from `attempt` on change with a claim only: see `change_run` of a commit.
        """

    @abstractmethod
    async def get_current_run(self, session_id: str) -> RunRecord | None:
        """Return the run that was started last; None if there is none (or no session)."""

    @abstractmethod
    async def list_runs(self, session_id: str) -> list[RunRecord]:
        """Return all runs in the order in which they were started."""

    # -- checkpoints

    @abstractmethod
    async def list_checkpoints(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Page[Checkpoint]:
        """Return checkpoints, newest first; their `state.custom_state` is None (`get_checkpoint` loads it)."""

    @abstractmethod
    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint with the exact state at that commit (S8)."""

    @abstractmethod
    async def get_latest_checkpoint(self, session_id: str) -> Checkpoint | None:
        """Return the last checkpoint with its exact state; None if there is none (or no session)."""

    @abstractmethod
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
        """Restore state, messages and status of a commit; drop later checkpoints and staging (S9). *Atomic.*

        Incarnation and owner epoch stay. `append_messages` follow those of the commit. `change_run`, `owner` and
        `new_epoch` as in a commit. Branches that part later are dropped.
        """

    @abstractmethod
    async def fork_session(
        self,
        session_id: str,
        new_session_id: str,
        *,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] | None = None,
        append_messages: Sequence[Message] = (),
    ) -> SessionState:
        """Create an independent session from a checkpoint, or from the current state (S9). *Atomic.* Raises
        `SessionExists`.

        The fork has an incarnation of its own, owner epoch 0 and no branches; `forked_from` names its origin. Given
        `metadata` and `tags` replace those of the original, and `append_messages` follow its messages. Nothing runs
        the fork: where the original is `active` and has messages, the fork is `interrupted`.
        """

    # -- branches

    @abstractmethod
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
        """Return to a point of the conversation and continue on a new branch (S17). *Atomic.* Raises
        `CheckpointNotFound`.

        Messages, checkpoints, custom state, staging, status and other fields as they are now are put aside as a branch;
        where branches part here already, as the one that is active now. Messages and custom state return to the point;
        `state` (without custom state), messages and checkpoint are committed on top, and become the new branch. If no
        messages follow the point, there is nothing to keep: no branch is made.

        Nothing runs a branch that was put aside: one that was `active` comes back `interrupted`. Runs, refs, the flag,
        tags, metadata and expiry belong to the session and stay.
        """

    @abstractmethod
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
        """Put the active branch aside, restore another one, and return the new version (S17). *Atomic.*

        `append_messages` follow those of the branch. Returns the version as it is, and appends nothing, if the branch
        is active already. Raises `InvalidArgument` for an unknown branch.
        """

    @abstractmethod
    async def list_branches(self, session_id: str) -> list[Branch]:
        """Return all branches, ordered by where they diverge; empty if the conversation never branched."""
