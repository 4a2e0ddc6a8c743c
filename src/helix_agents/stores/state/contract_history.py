"""The part of the state store's contract about runs and checkpoints, and the read that returns all of a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ...codec import Json
from ...types import Checkpoint, Conversation, Owner, Page, RunRecord, RunStatus, SessionState
from .commit import RunChange


class RunsAndCheckpoints(ABC):
    """Runs and checkpoints of sessions."""

    # -- everything at one moment

    @abstractmethod
    async def load_conversation(
        self, session_id: str, *, last: int | None = 50, offset: int | None = None, custom_state: bool = True
    ) -> Conversation | None:
        """Load a session, its `last` messages, its latest run and its latest checkpoint, as of one moment.

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
        expected_version: int | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
    ) -> int:
        """Restore state, messages and status of a commit; drop later checkpoints and staging (S9). *Atomic.*

        Incarnation and owner epoch stay. `change_run`, `owner` and `new_epoch` as in a commit.
        """

    @abstractmethod
    async def fork_session(
        self, session_id: str, new_session_id: str, *, checkpoint_id: str | None = None
    ) -> SessionState:
        """Create an independent session from a checkpoint, or from the current state (S9). *Atomic.* Raises
        `SessionExists`.

        The fork has its own incarnation and owner epoch 0.
        """
