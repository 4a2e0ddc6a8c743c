"""Commit: everything that one atomic write may contain, as a value.

`base.py` decides what should happen and describes it in a `Commit`; a backend applies it atomically and does not know
why. A commit carries its own conditions (guards), because not every backend can read before it writes: if one is
violated, the backend raises `CommitRefused` and nothing is written.

Custom state is kept in **cells**. A cell is named by a top-level key and a slot: `None` for the key itself, an index
for an item of a list under that key, a name for a member of an object under it. The text of a key's own cell is its
JSON, or `LIST` or `OBJECT` where the content is in further cells. So an append writes only the new items, and two
tools that set different members do not meet.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import msgspec

from ...codec import encode
from ...types import (
    CheckpointKind,
    Claimable,
    InterruptFlag,
    Owner,
    RunRecord,
    SessionState,
    SessionStatus,
    StagedKind,
    SubSessionRef,
)
from ..along import Along

LIST: Final = "["
OBJECT: Final = "{"

Slot = None | int | str

GuardReason = Literal[
    "missing", "exists", "version", "epoch", "identity", "staged", "cells", "run", "lease", "checkpoint"
]


class CommitRefused(Exception):  # an outcome between base and backend; never reaches a user
    """A precondition of a commit did not hold; nothing was written."""

    def __init__(self, reason: GuardReason) -> None:
        self.reason: GuardReason = reason
        super().__init__(reason)


class CellName(NamedTuple):
    """The position of a piece of custom state."""

    key: str
    slot: Slot = None


CellTexts = dict[CellName, str | None]
"""The known texts of some cells; None: known to be absent."""


class KeyContent(NamedTuple):
    """Everything under one top-level key, in the texts of its cells."""

    text: str
    items: tuple[str, ...] = ()
    members: tuple[tuple[str, str], ...] = ()


class CustomChanges(msgspec.Struct, frozen=True):
    """Changes of custom state. The parts never overlap, so their order does not matter.

    `expected`: cells that must hold exactly this text (None: must be absent), else the guard `cells` fails.
    `replace_all`: drop every key that is not in `set_keys`. Cells that hold the wanted text already stay untouched.
    """

    expected: CellTexts = {}
    replace_all: bool = False
    set_keys: dict[str, KeyContent] = {}
    drop_keys: tuple[str, ...] = ()
    set_cells: dict[CellName, str] = {}
    drop_cells: tuple[CellName, ...] = ()
    append: dict[str, tuple[str, ...]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not (
            self.replace_all or self.set_keys or self.drop_keys or self.set_cells or self.drop_cells or self.append
        )


NO_CHANGES: Final = CustomChanges()


class StagedRow(NamedTuple):
    """What one tool call wrote. `token` changes each time the row is written, so that the row can be identified.

    Kind and tool call name the row within its step.
    """

    kind: StagedKind
    tool_call_id: str
    position: int
    writes: str
    result: str
    token: str
    staged_at: int


class StagedStep(NamedTuple):
    """The staged rows of a step, as the writer of the commit knows them: (kind, tool_call_id, token) of each."""

    step_id: str
    rows: tuple[tuple[str, str, str], ...]


class CheckpointRow(NamedTuple):
    """A checkpoint as the writer of the commit knows it; count, version and number are filled in by the write."""

    checkpoint_id: str
    step_id: str
    step_count: int
    stream_sequence: int
    kind: CheckpointKind
    state: str


class Copy(NamedTuple):
    """Messages and custom state that a new session copies: as of a checkpoint, or (None) the current ones."""

    session_id: str
    incarnation: str
    version: int
    number: int | None
    message_count: int | None


class BranchMove(NamedTuple):
    """Put the end of a conversation aside as a branch, and restore another one in its place."""

    number: int
    """The checkpoint after which both diverge. Guard `checkpoint`: it exists, and so do the messages that are kept."""
    message_count: int
    """How many messages are kept."""
    shelved: str
    """The branch under which messages, checkpoints, changes of custom state and staged rows are put aside."""
    returned: str | None = None
    """The branch whose messages, checkpoints, changes and staged rows are restored."""


class BranchRow(NamedTuple):
    """The stored record of a branch, without its shelf. `state` None: unchanged."""

    branch_id: str
    about: str
    state: str | None = None


class BranchChanges(NamedTuple):
    """Changes of a session's branches, in this order. `dropped`: branches to delete with their shelves."""

    moves: tuple[BranchMove, ...] = ()
    rows: tuple[BranchRow, ...] = ()
    dropped: tuple[str, ...] = ()


NO_BRANCHES: Final = BranchChanges()


class RunChange(NamedTuple):
    """A run as the writer read it, and as it must be from now on: ended, or with another lease.

    The guard compares status and lease only. The write changes only the fields in which the two records differ.
    """

    seen: RunRecord
    wanted: RunRecord

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that change, with their new values."""
        names = self.seen.__struct_fields__
        both = ((name, getattr(self.seen, name), getattr(self.wanted, name)) for name in names)
        # `{"a": 1}` equals `{"a": True}`, so equal containers are compared by their text.
        return {name: new for name, old, new in both if new is not old and (new != old or encode(new) != encode(old))}


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One atomic write to one session."""

    session_id: str
    now: int

    # -- guards: without `create` the session must exist; with it, it must not
    create: bool = False
    owner: Owner | None = None
    """Guard `missing`: the session has this incarnation. Guard `epoch`: it has this owner epoch, if one is given."""
    expected_version: int | None = None
    new_epoch: int | None = None
    """The owner epoch from now on. Guard `epoch`: it is greater than the stored one."""
    allowed_from: tuple[str, ...] = ()
    """The session's status must be one of these (empty: any): a change that the lifecycle forbids fails `version`."""
    promote: StagedStep | None = None
    """The staged rows of that step must be exactly these; they are deleted."""

    # -- effects
    state: SessionState | None = None
    """The fields that `save_state` may change. With `create`: the whole new session.

    Guard `identity`, unless a checkpoint is restored: `Identity.of(state)` agrees with the stored session. Once the
    session is created, `forked_from` stays.
    """
    bump_version: bool = False
    status: SessionStatus | None = None
    due_at: int | None = None
    """With `state` or `status`: when a worker can continue the session; None if it cannot."""
    add_steps: int = 0
    add_resumes: int = 0
    copy: Copy | None = None
    """With `create`: start with a copy of another session. Guards: `missing` and `version` for that session,
    `checkpoint` if it no longer has that checkpoint.
    """
    messages: tuple[str, ...] = ()
    keep_messages: int | None = None
    """Drop all messages after this many; checkpoints that counted more are corrected to this count."""
    custom: CustomChanges = NO_CHANGES
    stage: tuple[str, tuple[StagedRow, ...]] | None = None
    """A step id and the rows to stage for it, one per tool call."""
    discard_step: str | None = None
    discard_all: bool = False
    checkpoint: CheckpointRow | None = None
    restore_number: int | None = None
    """Bring custom state back to the checkpoint of that number, drop later checkpoints. Guard: it must exist.

    Cannot be combined with changes of custom state, which were computed from the state before the restore.
    """
    branches: BranchChanges = NO_BRANCHES
    """Cannot be combined with changes of custom state, like `restore_number`."""
    run: RunRecord | None = None
    """Insert this run; a turn of 0 becomes the one after that of the latest run. Guard `run`: the id must be free."""
    change_run: RunChange | None = None
    """Change a run of this session. Guard `lease`: its status and lease are still as they were read."""
    refs: tuple[SubSessionRef, ...] = ()
    flag: InterruptFlag | None = None
    clear_flag: bool = False
    along: Along | None = None
    """Only for a backend that `carries` it. The checkpoint records the stream position after it."""


class Identity(NamedTuple):
    """The fields of a session that never change. A hand-made state need not have the first two."""

    incarnation: str | None
    created_at: int | None
    agent_type: str
    user_id: str | None

    @classmethod
    def of(cls, state: SessionState) -> Identity:
        """Return the identity in a state; None for fields that are not set."""
        return cls(state.incarnation or None, state.created_at or None, state.agent_type, state.user_id)

    def difference(self, stored: SessionState | Identity) -> str | None:
        """Return the name of the first field that differs from a stored session."""
        for name, value in self._asdict().items():
            if value != getattr(stored, name) and (value is not None or name == "user_id"):
                return name
        return None


class Applied(NamedTuple):
    """The session's counters after a commit, and what it removed."""

    version: int
    message_count: int
    step_count: int
    resume_count: int
    removed: int = 0
    """Messages cut by `keep_messages`, or staged rows discarded."""
    turn: int = 0
    sequence: int = 0
    """The sequence of the last chunk that the commit carried."""


class StoredSession(NamedTuple):
    """A session as read. `state.custom_state` is None unless custom state was requested."""

    state: SessionState
    message_count: int
    checkpoint_count: int


class StoredCheckpoint(NamedTuple):
    """A checkpoint as read."""

    checkpoint_id: str
    number: int
    step_id: str
    step_count: int
    stream_sequence: int
    message_count: int
    status: SessionStatus
    version: int
    state: str
    created_at: int
    session_created_at: int
    session_incarnation: str
    kind: CheckpointKind


class StoredConversation(NamedTuple):
    """A session as read, with messages, the latest run and the latest checkpoint of the same moment."""

    session: StoredSession
    messages: list[str]
    run: RunRecord | None
    checkpoint: StoredCheckpoint | None


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A validated `list_sessions` request. `after`: only those after this `(created_at, session_id)`."""

    user_id: str | None = None
    agent_type: str | None = None
    statuses: tuple[str, ...] = ()
    roots_only: bool = False
    parent_session_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    created_from: int | None = None
    created_to: int | None = None
    expires_before: int | None = None
    after: tuple[int, str] | None = None

    def matches(self, state: SessionState) -> bool:
        """Return whether a session matches, ignoring `after`: for backends that filter in Python."""
        return (
            self.user_id in (None, state.user_id)
            and self.agent_type in (None, state.agent_type)
            and (not self.statuses or state.status in self.statuses)
            and not (self.roots_only and state.parent_session_id is not None)
            and self.parent_session_id in (None, state.parent_session_id)
            and all(tag in state.tags for tag in self.tags)
            and all(state.metadata.get(key) == text for key, text in self.metadata)
            and (self.created_from is None or state.created_at >= self.created_from)
            and (self.created_to is None or state.created_at < self.created_to)
            and (self.expires_before is None or _before(state.expires_at, self.expires_before))
        )


AFTER_RUNS: Final = 2**53 - 1
"""Among sessions that fell due in the same millisecond, those found by their runs come first."""


class ClaimablePlace(NamedTuple):
    """The position of a session among those that are due: the time, the start of its run, its id."""

    due_at: int
    started_at: int
    session_id: str

    @classmethod
    def of(cls, found: Claimable) -> ClaimablePlace:
        """Return the position of a session that was found."""
        is_open = found.run is not None and found.run.status == "running"
        return cls(
            found.due_at, found.run.started_at if found.run and is_open else AFTER_RUNS, found.session.session_id
        )


class ClaimableFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request for sessions that are due. `after`: only those after this place."""

    now: int
    statuses: tuple[str, ...] = ()
    agent_types: tuple[str, ...] | None = None
    after: ClaimablePlace | None = None

    def matches(self, state: SessionState) -> bool:
        """Return whether a due session matches: for backends that filter in Python."""
        return (
            state.parent_session_id is None
            and (not self.statuses or state.status in self.statuses)
            and (self.agent_types is None or state.agent_type in self.agent_types)
        )

    def place_of(self, state: SessionState, latest: RunRecord | None, due_at: int | None) -> ClaimablePlace | None:
        """Return where a session is among those that are due; None if it is not due.

        Its latest run is open and its lease is over, or it has no open run and its `due_at` has come.
        """
        if latest is not None and latest.status == "running":
            moment, started_at = latest.lease_until or 0, latest.started_at
        else:
            moment, started_at = -1 if due_at is None else due_at, AFTER_RUNS
        return ClaimablePlace(moment, started_at, state.session_id) if 0 <= moment <= self.now else None


def _before(value: int | None, bound: int) -> bool:
    return value is not None and value < bound
