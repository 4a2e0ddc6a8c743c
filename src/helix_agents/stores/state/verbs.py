"""The verbs: all that a backend must be able to do for the state store to work on it.

A backend implements these and nothing else; `base.py` turns them into the contract. A verb either happens as a
whole or not at all, sees everything that was acknowledged before it, and raises `StoreUnavailable` when the backend
cannot be reached. Replies are texts and numbers as stored, or None where the session does not exist.
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
    """A state store whose backend speaks verbs."""

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
        "_scan_sessions",
        "_scan_claimable",
        "_next_due",
    )
    """Where the conformance kit puts its faults."""

    def __init__(self, *, clock: Clock = system_clock, ids: IdSource = random_id) -> None:
        self._clock = clock
        self._ids = ids

    # -- writing

    @abstractmethod
    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        """Make the commit visible; return the counters after it, and the cells `want` as they are then.

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
        """Swap the status, storing `also` (interrupt_context, error, failure_reason) with it, or say what is there.

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
        """Remove the session and all below it by `parent_session_id`, and the refs to them.

        Raises `CommitRefused` with `missing` or `epoch` if the session is not the owner's.
        """

    # -- reading

    @abstractmethod
    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        """The session, its flag included, read at one moment; with or without custom state."""

    @abstractmethod
    async def _read_cells(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None] | None:
        """The texts of these cells; None for a cell that is absent."""

    @abstractmethod
    async def _read_checkpoint(
        self, session_id: str, checkpoint_id: str | None, *, custom_state: bool
    ) -> tuple[StoredCheckpoint, dict[str, Json] | None] | None:
        """One checkpoint, or the last one, with or without custom state as of then, read at one moment."""

    @abstractmethod
    async def _read_checkpoints(
        self, session_id: str, limit: int, offset: int
    ) -> tuple[list[StoredCheckpoint], int] | None:
        """Checkpoints, newest first, and how many there are."""

    @abstractmethod
    async def _read_staged(self, session_id: str, step_id: str) -> list[StagedRow] | None:
        """What is staged for a step, in any order."""

    @abstractmethod
    async def _read_messages(self, session_id: str, offset: int, limit: int | None) -> tuple[list[str], int] | None:
        """Messages and how many there are; a negative offset counts from the end."""

    @abstractmethod
    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        """The session, its messages from `offset` on (None: none of them), its latest run and its latest checkpoint.

        Read at one moment, in one round trip. A negative offset counts from the end.
        """

    @abstractmethod
    async def _read_runs(self, session_id: str, *, last: bool) -> list[RunRecord] | None:
        """All runs in order, or only the last one."""

    @abstractmethod
    async def _read_refs(self, session_id: str) -> list[SubSessionRef] | None:
        """The refs in the order in which they were added."""

    @abstractmethod
    async def _read_flag(self, session_id: str) -> tuple[InterruptFlag | None] | None:
        """The flag, in a tuple, since there may be none."""

    @abstractmethod
    async def _scan_sessions(
        self, wanted: SessionFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[SessionState], int | None]:
        """Up to `limit` sessions that match, newest first, without custom state; and how many match in all."""

    @abstractmethod
    async def _scan_claimable(self, wanted: ClaimableFilter, *, limit: int, offset: int) -> list[Claimable]:
        """Up to `limit` sessions that are due and match, in the order of `ClaimableFilter.place_of`."""

    @abstractmethod
    async def _next_due(self, now: int) -> int | None:
        """The first moment after `now` at which a session may become due; it may be too early, never too late."""
