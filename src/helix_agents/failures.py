"""Why a session failed: the codes of `SessionState.failure_reason`, and the reason by which a deletion stops a run.

The codes are stored and sent to clients, so they stay as they are. Nothing else spells them out: a new kind of failure
gets a constant here. Applications may store codes of their own.
"""

from __future__ import annotations

from typing import Final, Literal

from .ids import RESERVED_PREFIX

FailureReason = Literal[
    "aborted",
    "error",
    "history_error",
    "input_refused",
    "max_steps",
    "model_error",
    "not_storable",
    "output_refused",
    "parent_failed",
    "parent_moved_on",
    "parent_restored",
    "parent_suspended",
    "parent_timeout",
    "poisoned",
    "session_expired",
    "stream_error",
    "tools_unavailable",
    "usage_limit",
]

ABORTED: Final = "aborted"
ERROR: Final = "error"
"""Something that the library did not expect."""
HISTORY_ERROR: Final = "history_error"
INPUT_REFUSED: Final = "input_refused"
MAX_STEPS: Final = "max_steps"
MODEL_ERROR: Final = "model_error"
NOT_STORABLE: Final = "not_storable"
OUTPUT_REFUSED: Final = "output_refused"
PARENT_FAILED: Final = "parent_failed"
"""Its parent's step failed; a retry of the parent runs it again."""
PARENT_MOVED_ON: Final = "parent_moved_on"
"""The user sent its parent a message instead of an answer."""
PARENT_RESTORED: Final = "parent_restored"
PARENT_SUSPENDED: Final = "parent_suspended"
PARENT_TIMEOUT: Final = "parent_timeout"
POISONED: Final = "poisoned"
"""Several processes in a row died while working on it, without a commit."""
SESSION_EXPIRED: Final = "session_expired"
STREAM_ERROR: Final = "stream_error"
TOOLS_UNAVAILABLE: Final = "tools_unavailable"
USAGE_LIMIT: Final = "usage_limit"

DELETED_REASON: Final = f"{RESERVED_PREFIX}deleted"
"""The reason for stopping the run of a deleted session. Callers cannot give it: readers of the stream rely on it."""
