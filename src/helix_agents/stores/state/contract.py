"""StateStore: durable sessions. Each public method states its guarantees by id (S1 to S17).

Runs, checkpoints and branches of a session are in `contract_history.py`.

- S1 claim: of N concurrent creates of one id exactly one succeeds.
- S2 one atomic commit: all of a step becomes visible together or not at all.
- S3 version: goes up by one with `save_state`, the commit, `update_status`, a won `compare_and_set_status`,
  `restore_checkpoint`, `branch_session` and `switch_branch`; nothing else moves it, and it is never a clock.
- S4 composable writes: appends, merges, increments, flags, refs and staging never lose each other.
- S5 merge: staged writes merge in the order of the tool calls; lost writes are warnings.
- S6 status swap: a lost race is a return value, not an error.
- S7 flags: an interrupt flag survives everything but `clear_interrupt_flag`.
- S8 checkpoints: cost what the step wrote, and give back the exact state.
- S9 restore and fork.
- S10 delete: nothing is left of a session and of those below it.
- S11 listing: filters, order, keyset and offset.
- S12 idempotent commit: a lost reply never means twice or not at all.
- S13 flat cost: what a write costs does not depend on what was there before.
- S14 isolation: sessions, prefixes and schemas are kept apart.
- S15 old data: migrations forward only; a newer database is refused.
- S16 claimable: sessions that a worker can continue now are found by an index.
- S17 branches: the ends of a conversation come back exactly, and cost their own size.

Most writes take `owner`: the claim that the writer holds. They are rejected if the session has been deleted
(`SessionNotFound`, also if it was created again) or claimed by another process (`EpochConflict`) since.

Unless a method says otherwise it raises `SessionNotFound` for a session that does not exist, `InvalidArgument` or
`NotSerializable` for bad input, and `StoreUnavailable` when the backend cannot be reached; in all these cases nothing
is written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

import msgspec

from ...codec import Json
from ...messages import Message
from ...state.writes import StepWrites
from ...types import (
    CheckpointMeta,
    Claimable,
    Committed,
    InterruptFlag,
    Owner,
    Page,
    RunRecord,
    SessionState,
    SessionStatus,
    StagedChanges,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from ..along import Along, Carrier
from .commit import RunChange
from .contract_history import RunsAndCheckpoints


class _Unset(Enum):
    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = _Unset.UNSET
"""Stands for an argument that was left out where None means something."""

Unset = Literal[_Unset.UNSET]


class StateStore(Carrier, RunsAndCheckpoints):
    """All sessions of one backend."""

    # -- sessions

    @abstractmethod
    async def create_session(
        self,
        session_id: str,
        *,
        agent_type: str,
        custom_state: Mapping[str, Json] | None = None,
        stream_id: str | None = None,
        parent_session_id: str | None = None,
        root_session_id: str | None = None,
        user_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        expires_at: int | None = None,
        messages: Sequence[Message] = (),
        checkpoint: CheckpointMeta | None = None,
        run: RunRecord | None = None,
        owner_epoch: int = 0,
        along: Along | None = None,
    ) -> SessionState:
        """Create a session, `active`, version 1. Raises `SessionExists` if the id is taken. *Atomic* (S1).

        `messages`, `checkpoint` and `run`: stored in the same write; `run` as in the commit.
        `owner_epoch`: not 0 if the caller claims the new session. `along`: see `Carrier`.
        """

    @abstractmethod
    async def session_exists(self, session_id: str) -> bool:
        """Return whether there is such a session."""

    @abstractmethod
    async def delete_session(self, session_id: str, *, owner: Owner | None = None) -> bool:
        """Remove the session and its descendants (S10). Return False if it does not exist. *Idempotent.*

        With an `owner`, a session that was deleted and created again is not deleted: returns False.
        """

    @abstractmethod
    async def load_state(self, session_id: str) -> SessionState | None:
        """Return the session with its custom state, read at one moment; None if there is none."""

    @abstractmethod
    async def save_state(
        self,
        session_id: str,
        state: SessionState,
        *,
        expected_version: int | None = None,
        run: RunRecord | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
        keep_messages: int | None = None,
        messages: Sequence[Message] = (),
        along: Along | None = None,
    ) -> int:
        """Store the session's fields; return the new version (S3). *Atomic.* Options as in a commit.

        `keep_messages`: drop all messages after this many, as `truncate_messages` does, then append `messages`.
        `custom_state=None` leaves custom state as stored. Never written: `version`, `updated_at`, `interrupt_flag`,
        `owner_epoch`. Raises `VersionConflict`; `IllegalTransition` for a status that the session cannot change to;
        `InvalidArgument` if `user_id` or `agent_type`, or a given `created_at` or `incarnation`, would change.
        """

    @abstractmethod
    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        *,
        expected_version: int | None = None,
        unstaged: Sequence[StagedChanges] = (),
        run: RunRecord | None = None,
        change_run: RunChange | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
        along: Along | None = None,
    ) -> Committed:
        """Commit a step: fields, messages, staged writes of `checkpoint.step_id`, checkpoint, version. *Atomic* (S2).

        A checkpoint of another kind than `step` promotes nothing: staged rows stay.

        Given `state.custom_state` replaces custom state first; the staged writes apply on top. `step_count` of the
        checkpoint becomes that of the session. *Idempotent* after a lost reply (S12). Raises `VersionConflict`.

        `unstaged`: calls that were never staged; they merge at their index as if they had been. `run`: a run that
        begins with this commit, as `create_run` would begin it; its turn and its start are filled in. `change_run`:
        end another run of this session, or give it a new lease. Raises `LeaseConflict` if its status or lease is no
        longer as it was read. `new_epoch`: claim the session; raises `EpochConflict` unless it is greater than the
        stored epoch. With `expected_version` or `owner`, a `state` that was read before the session was deleted and
        created again raises `SessionNotFound`.
        """

    # -- staging

    @abstractmethod
    async def stage_calls(
        self,
        session_id: str,
        step_id: str,
        calls: Sequence[StagedChanges],
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
        along: Along | None = None,
    ) -> int:
        """Store the writes and outcomes of tool calls until the step commits. *Atomic.*

        Returns the sequence of the last chunk that went `along` (see `Carrier`), or 0.
        The same call again replaces; `staged_at` is filled in. Does not change the version. Raises `VersionConflict` if
        `expected_version` is given and not the session's (S3).
        """

    async def stage_changes(
        self,
        session_id: str,
        step_id: str,
        writes: StepWrites,
        *,
        tool_call_id: str,
        index: int = 0,
        result: Json = None,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Store the writes of one tool call, as `stage_calls` does for several."""
        call = StagedChanges(tool_call_id, index, writes, result)
        await self.stage_calls(session_id, step_id, [call], expected_version=expected_version, owner=owner)

    @abstractmethod
    async def list_staged(self, session_id: str, step_id: str) -> list[StagedChanges]:
        """Return the staged rows of a step, in the order of the tool calls."""

    @abstractmethod
    async def promote_staging(self, session_id: str, step_id: str) -> list[str]:
        """Merge the staged writes of a step into custom state and drop them; return the warnings. *Atomic* (S5)."""

    @abstractmethod
    async def discard_staging(
        self,
        session_id: str,
        step_id: str | None = None,
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> int:
        """Drop the staged rows of a step, or all; return the number of tool calls. `expected_version` as in S3."""

    # -- composable writes

    @abstractmethod
    async def append_messages(self, session_id: str, messages: Sequence[Message], *, owner: Owner | None = None) -> int:
        """Append messages in order; return the new message count (S4). *Atomic.*"""

    @abstractmethod
    async def merge_custom_state(self, session_id: str, writes: StepWrites, *, owner: Owner | None = None) -> list[str]:
        """Apply one list of writes to the current custom state; return the warnings (S4, S5). *Atomic.*"""

    @abstractmethod
    async def update_status(self, session_id: str, status: SessionStatus, *, owner: Owner | None = None) -> int:
        """Set the status and return the new version. Raises `IllegalTransition` if the lifecycle forbids it (S6)."""

    @abstractmethod
    async def increment_step_count(self, session_id: str) -> int:
        """Add one; returns the new count."""

    @abstractmethod
    async def increment_resume_count(self, session_id: str) -> int:
        """Add one; returns the new count."""

    @abstractmethod
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
        """Swap the status if it is one of `expected` (and version and owner match); otherwise return the current one
        (S6).

        `interrupt_context`, `error` and `failure_reason` are stored with the swap where they are given.
        Raises `IllegalTransition` if the session is in an expected status from which `new` cannot be reached.
        """

    # -- interrupt flag

    @abstractmethod
    async def set_interrupt_flag(
        self,
        session_id: str,
        reason: str | None = None,
        *,
        run_id: str | None = None,
        abort: bool = False,
        owner: Owner | None = None,
    ) -> None:
        """Ask the session, or only one of its runs, to stop: at the next safe point, or immediately with `abort`
        (S7)."""

    @abstractmethod
    async def check_interrupt_flag(self, session_id: str) -> InterruptFlag | None:
        """Return the flag without clearing it."""

    @abstractmethod
    async def clear_interrupt_flag(self, session_id: str, *, owner: Owner | None = None) -> None:
        """Clear the flag. *Idempotent.*"""

    # -- sub-sessions

    @abstractmethod
    async def add_sub_session_refs(
        self,
        session_id: str,
        refs: Sequence[SubSessionRef],
        *,
        expected_version: int | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Record child sessions; a ref with a known `sub_session_id` replaces the old one. `expected_version` as in
        S3."""

    @abstractmethod
    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, owner: Owner | None = None, **changes: Any
    ) -> SubSessionRef:
        """Change fields of one ref, such as `status` or `completed_at`; return the changed ref."""

    @abstractmethod
    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        """Return the recorded child sessions, oldest first."""

    # -- messages

    @abstractmethod
    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int | None = 50, include_thinking: bool = True
    ) -> Page[Message]:
        """Return a page of the conversation; a negative `offset` counts from the end; `limit=None` means all.

        `include_thinking=False` leaves out the model's reasoning: messages of role `thinking` and `thinking` members.
        """

    @abstractmethod
    async def get_message_count(self, session_id: str) -> int:
        """Return how many messages there are."""

    @abstractmethod
    async def truncate_messages(self, session_id: str, message_count: int, *, owner: Owner | None = None) -> int:
        """Keep the first `message_count` messages, also for checkpoints that counted more; return how many were
        removed."""

    # -- listing

    @abstractmethod
    async def list_sessions(
        self,
        *,
        user_id: str | None = None,
        agent_type: str | None = None,
        status: SessionStatus | Iterable[SessionStatus] | None = None,
        parent_session_id: str | Unset | None = UNSET,
        tags: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        created_from: int | None = None,
        created_to: int | None = None,
        expires_before: int | None = None,
        limit: int = 50,
        offset: int = 0,
        cursor: str | None = None,
        count: bool = True,
    ) -> Page[SessionState]:
        """Return the sessions that match all filters, newest first, without custom state (S11).

        `tags`: has all of them. `metadata`: has all these members. `created_from` is inclusive, `created_to` and
        `expires_before` are exclusive.
        """

    @abstractmethod
    async def list_due(
        self,
        now: int,
        *,
        agent_types: Iterable[str] | None = None,
        status: SessionStatus | Iterable[SessionStatus] | None = None,
        limit: int = 100,
        offset: int = 0,
        cursor: str | None = None,
    ) -> Page[Claimable]:
        """Return root sessions that a worker can continue or close at `now`, each with its latest run (S16).

        Either the latest run is open and its lease is over (`lease_until` is not after `now`, or was never set): it was
        submitted or released, its process died, or it was never closed. Or it has no open run, and either it is
        suspended and its questions are all answered or expired, or it is suspended or paused and its `wake_at` has
        come. The longest waiting come first: by `lease_until`, then by the start of the run. `agent_types`, `status`:
        only these. `total` is None. Every page by `cursor` costs the same.
        """

    async def list_claimable(
        self,
        now: int,
        *,
        agent_types: Iterable[str] | None = None,
        status: SessionStatus | Iterable[SessionStatus] | None = None,
        limit: int = 100,
        offset: int = 0,
        cursor: str | None = None,
    ) -> list[SessionState]:
        """Return the sessions of a page of `list_due` (S16)."""
        options: dict[str, Any] = {"agent_types": agent_types, "status": status, "limit": limit, "offset": offset}
        return [found.session for found in (await self.list_due(now, **options, cursor=cursor)).items]

    @abstractmethod
    async def next_due(self, now: int) -> int | None:
        """Return a time after `now` before which no further session becomes due merely because time passes.

        None if there is no such moment: every open run is due, and nothing waits for a deadline.
        """

    finds_prefixes: bool = False
    """Whether `find_sessions` finds ids by a prefix; if not, only the session with exactly that id."""

    async def find_sessions(self, id_prefix: str, *, user_id: str | None = None, limit: int = 50) -> list[SessionState]:
        """Return sessions whose ids start with a prefix, ordered by id, without custom state (S11).

        For type-ahead search. May be incomplete for very common prefixes.
        """
        found = await self.load_state(id_prefix)
        if found is None or user_id not in (None, found.user_id):
            return []
        return [msgspec.structs.replace(found, custom_state=None)]

    exact_counts: bool = True
    """Whether `count_by_status` counts exactly; if not, large numbers are estimates."""

    async def count_by_status(self) -> dict[SessionStatus, int]:
        """Return the number of sessions per status. Cheap for any number of sessions (S11)."""
        statuses: tuple[SessionStatus, ...] = get_args(SessionStatus)
        pages = [await self.list_sessions(status=status, limit=1) for status in statuses]
        return {status: page.total or 0 for status, page in zip(statuses, pages, strict=True)}

    async def list_orphans(self, *, limit: int = 100) -> list[str]:
        """Return ids that have stored data but no session; empty if the store cannot have any."""
        return []

    async def drop_orphan(self, session_id: str) -> bool:
        """Remove the data of a session that does not exist; return whether there was any."""
        return False

    # -- resources

    async def close(self) -> None:
        """Release what this store opened itself, never what the caller passed in."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
