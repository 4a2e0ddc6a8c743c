"""The verbs: the operations that a backend implements for the state store.

A backend implements only these; `base.py` builds the contract on them. A verb is atomic, sees everything that was
acknowledged before it, and raises `StoreUnavailable` if the backend cannot be reached. Replies are texts and numbers as
stored, or None where the session does not exist.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import Json
from ...types import (
    Claimable,
    InterruptFlag,
    Owner,
    RunRecord,
    SessionState,
    SessionStatus,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from .commit import (
    Applied,
    CellName,
    ClaimableFilter,
    Commit,
    SessionFilter,
    StagedRow,
    StoredCheckpoint,
    StoredConversation,
    StoredSession,
)
from .contract import StateStore


class StateStoreVerbs(StateStore):
    """The verbs of a backend."""

    VERBS: ClassVar[tuple[str, ...]] = (
        "_apply",
        "_swap_status",
        "_update_run",
        "_update_ref",
        "_delete",
        "_read_session",
        "_read_cells",
        "_read_checkpoint",
        "_read_checkpoints",
        "_read_staged",
        "_read_messages",
        "_read_conversation",
        "_read_runs",
        "_read_refs",
        "_read_flag",
        "_read_branches",
        "_read_branch_state",
        "_scan_sessions",
        "_scan_claimable",
        "_next_due",
    )
    """Where the conformance kit injects faults."""

    def __init__(self, *, clock: Clock = system_clock, ids: IdSource = random_id) -> None:
        self._clock = clock
        self._ids = ids

    # -- writing

    @abstractmethod
    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        """Apply the commit; return the counters after it, and the cells `want` as they are then.

        Raises `CommitRefused`; of several violated guards the first in the order of `Commit` is reported.
        """

    @abstractmethod
    async def _swap_status(
        self,
        session_id: str,
        expected: tuple[str, ...],
        new: SessionStatus,
        *,
        also: Mapping[str, Any],
        expected_version: int | None,
        owner: Owner | None,
        due_at: int | None,
        now: int,
    ) -> StatusSwapped | StatusConflict | None:
        """Swap the status, storing `also` (interrupt_context, error, failure_reason) with it, or return the current
        one.

        `due_at`: when a worker can continue the session from now on. None also if the session has another incarnation
        than the owner's.
        """

    @abstractmethod
    async def _update_run(
        self, run_id: str, changes: Mapping[str, Any], allowed_from: tuple[str, ...], owner: Owner | None
    ) -> tuple[bool, RunRecord | None]:
        """Change fields of a run if its status is one of `allowed_from` and its session is the owner's.

        Returns whether it was changed, and the run as it is then.
        """

    @abstractmethod
    async def _update_ref(
        self, session_id: str, sub_session_id: str, changes: Mapping[str, Any], owner: Owner | None, now: int
    ) -> SubSessionRef | None:
        """Change fields of a ref; None if there is none (or no session). Raises `CommitRefused` if not the owner's."""

    @abstractmethod
    async def _delete(self, session_id: str, owner: Owner | None) -> bool:
        """Delete the session, its descendants by `parent_session_id`, and the refs to them.

        Raises `CommitRefused` with `missing` or `epoch` if the session is not the owner's.
        """

    # -- reading

    @abstractmethod
    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        """Return the session with its flag, from one snapshot; with or without custom state."""

    @abstractmethod
    async def _read_cells(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None] | None:
        """Return the texts of these cells; None for a cell that is absent."""

    @abstractmethod
    async def _read_checkpoint(
        self, session_id: str, checkpoint_id: str | None, *, custom_state: bool
    ) -> tuple[StoredCheckpoint, dict[str, Json] | None] | None:
        """Return one checkpoint, or the last one, with or without its custom state, from one snapshot."""

    @abstractmethod
    async def _read_checkpoints(
        self, session_id: str, limit: int, offset: int
    ) -> tuple[list[StoredCheckpoint], int] | None:
        """Return checkpoints, newest first, and how many there are."""

    @abstractmethod
    async def _read_staged(self, session_id: str, step_id: str) -> list[StagedRow] | None:
        """Return what is staged for a step, in any order."""

    @abstractmethod
    async def _read_messages(self, session_id: str, offset: int, limit: int | None) -> tuple[list[str], int] | None:
        """Return messages and how many there are; a negative offset counts from the end."""

    @abstractmethod
    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        """Return the session, its messages from `offset` on (None: no messages), its latest run and its latest
        checkpoint.

        Read at one moment, in one round trip. A negative offset counts from the end.
        """

    @abstractmethod
    async def _read_runs(self, session_id: str, *, last: bool) -> list[RunRecord] | None:
        """Return all runs in order, or only the last one."""

    @abstractmethod
    async def _read_refs(self, session_id: str) -> list[SubSessionRef] | None:
        """Return the refs in the order in which they were added."""

    @abstractmethod
    async def _read_flag(self, session_id: str) -> tuple[InterruptFlag | None] | None:
        """Return the flag in a tuple, because the flag itself may be None."""

    @abstractmethod
    async def _read_branches(self, session_id: str) -> dict[str, str] | None:
        """Return what is stored about each branch, by id."""

    @abstractmethod
    async def _read_branch_state(self, session_id: str, branch_id: str) -> str | None:
        """Return the fields of the session as they were when the branch was put aside; None if there is no such
        branch."""

    @abstractmethod
    async def _scan_sessions(
        self, wanted: SessionFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[SessionState], int | None]:
        """Return up to `limit` matching sessions, newest first, without custom state; and how many match in total."""

    @abstractmethod
    async def _scan_claimable(self, wanted: ClaimableFilter, *, limit: int, offset: int) -> list[Claimable]:
        """Return up to `limit` matching sessions that are due, in the order of `ClaimableFilter.place_of`."""

    @abstractmethod
    async def _next_due(self, now: int) -> int | None:
        """Return the first time after `now` at which a session may become due; it may be too early, never too late."""
