"""Every error that this library raises on purpose, in one tree.

    HelixError
    ├── InvalidArgument            the caller's fault: an id, a limit, a status, a cursor
    │   └── NotSerializable        a value that is not JSON; carries the JSON pointer to it
    ├── SessionNotFound            no such session
    ├── SessionExists              the id is taken
    ├── RunNotFound                no such run
    ├── CheckpointNotFound         no such checkpoint in that session
    ├── VersionConflict            another writer was first
    ├── EpochConflict              another process has claimed the session
    ├── LeaseConflict              a run has ended or renewed its lease since it was read
    ├── IllegalTransition          a status change that the lifecycle tables forbid
    ├── AlreadyRunning             the session has a live run
    ├── StaleTicket                a ticket whose step has been done
    ├── IdempotencyConflict        the key was used for another request
    ├── NotResumable               there is nothing to resume, or not yet
    ├── RunLost                    the run's process died, or another process took the session over
    ├── ModelError                 the model did not reply; says whether a retry may help
    ├── ToolsUnavailable           a toolset has nothing to offer: its server does not respond
    ├── DraftClosed                a draft used after its update
    ├── PatchError                 a JSON Patch that does not apply
    ├── StreamError
    │   ├── StreamNotActive        writing to a stream that has ended, failed or is paused
    │   ├── StreamFenced           a writer, rewind or reset of an owner that another has replaced
    │   ├── StreamFailed           the producer declared the stream failed
    │   ├── StreamTruncated        the cursor is older than the first kept chunk
    │   └── StreamCursorAhead      the cursor is beyond the last chunk
    └── StoreError                 the backend's fault
        ├── StoreUnavailable       unreachable, read-only, full: a write may or may not be stored
        ├── StoreCorrupt           what is stored cannot be read
        ├── SchemaTooNew           the database was written by a newer version of this library
        └── NotMigrated            opened without migrating, but there are no stores, or their schema is older

Messages say what happened, to which object, and what to do about it. Driver errors never escape a backend: they
are the `__cause__` of one of these.
"""

from __future__ import annotations

from datetime import UTC, datetime
from reprlib import Repr

MAX_SHOWN_TIME = 253_402_300_800_000
"""The year 10000 in milliseconds: later times are not shown as dates."""

_repr = Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80


def shown(value: object) -> str:
    """Return a value as an error message shows it: short, and safe for any object."""
    try:
        return _repr.repr(value)
    except Exception:  # too deep, an int of too many digits, a __repr__ that raises
        return f"a value of type {type(value).__name__}"


class HelixError(Exception):
    """Base of all errors of this library."""


class InvalidArgument(HelixError, ValueError):
    """An argument that can never be right; nothing was written."""


class NotSerializable(InvalidArgument, TypeError):
    """A value that is not JSON, with the pointer to it."""

    def __init__(self, path: str, type_name: str) -> None:
        self.path = path
        self.type_name = type_name
        super().__init__(f"{path or '(the whole value)'}: {type_name} is not JSON")


class SessionNotFound(HelixError, LookupError):
    """No session has this id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"There is no session {session_id!r}: create it first, or check the id.")


class SessionExists(HelixError):
    """The session id is taken."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"Session {session_id!r} exists already: load it, or choose another id.")


class RunNotFound(HelixError, LookupError):
    """No run has this id."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"There is no run {run_id!r}: create it first, or check the id.")


class CheckpointNotFound(HelixError, LookupError):
    """The session has no such checkpoint."""

    def __init__(self, session_id: str, checkpoint_id: str) -> None:
        self.session_id = session_id
        self.checkpoint_id = checkpoint_id
        super().__init__(
            f"Session {session_id!r} has no checkpoint {checkpoint_id!r}: list_checkpoints() shows those it has."
        )


class VersionConflict(HelixError):
    """The stored version is not the expected one; nothing was written."""

    def __init__(self, expected_version: int, current_version: int, current_status: str, session_id: str = "") -> None:
        self.expected_version = expected_version
        self.current_version = current_version
        self.current_status = current_status
        self.session_id = session_id
        super().__init__(
            f"Session {session_id!r} is at version {current_version} ({current_status}), not {expected_version}: "
            "load it again and retry."
        )


class EpochConflict(HelixError):
    """The writer no longer owns the session: another process has claimed it. Nothing was written."""

    def __init__(self, session_id: str, expected_epoch: int, current_epoch: int) -> None:
        self.session_id = session_id
        self.expected_epoch = expected_epoch
        self.current_epoch = current_epoch
        super().__init__(
            f"Session {session_id!r} has owner epoch {current_epoch}, not {expected_epoch}: another process has "
            "claimed it. Load it again."
        )


class LeaseConflict(HelixError):
    """A run has ended or its lease has changed since it was read; nothing was written."""

    def __init__(self, session_id: str, run_id: str) -> None:
        self.session_id = session_id
        self.run_id = run_id
        super().__init__(
            f"Run {run_id!r} of session {session_id!r} has changed since it was read: load it again and retry."
        )


class IllegalTransition(HelixError):
    """A status change that the lifecycle does not allow; nothing was written."""

    def __init__(self, kind: str, current: str, wanted: str, object_id: str, allowed: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.current = current
        self.wanted = wanted
        self.object_id = object_id
        self.allowed = allowed
        open_ways = f"it can become {', '.join(allowed)}" if allowed else f"a {kind} that is {current} stays so"
        super().__init__(f"{kind.capitalize()} {object_id!r} cannot go from {current!r} to {wanted!r}: {open_ways}.")


class AlreadyRunning(HelixError):
    """The session has a live run; a second one would interfere with it.

    `lease_until`: when another process may continue the run if its own has died; None if unknown.
    """

    def __init__(self, session_id: str, run_id: str | None = None, *, lease_until: int | None = None) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.lease_until = lease_until
        run = f" (run {run_id!r})" if run_id else ""
        lease = ""
        if lease_until and lease_until < MAX_SHOWN_TIME:
            until = datetime.fromtimestamp(lease_until / 1000, UTC).isoformat(timespec="seconds")
            lease = f" If its process has died, the session can be resumed after {until}, when the lease expires."
        super().__init__(f"Session {session_id!r} is running{run}: wait for it, or interrupt it first.{lease}")


class StaleTicket(HelixError):
    """A `Ticket` of a step that was already executed, or of a turn that is over."""

    def __init__(self, session_id: str, why: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"The ticket of session {session_id!r} is outdated: {why}. Continue with the ticket that `step` returned."
        )


class IdempotencyConflict(HelixError):
    """The idempotency key belongs to another request; nothing was started."""

    def __init__(self, session_id: str, key: str) -> None:
        self.session_id = session_id
        self.key = key
        super().__init__(
            f"Key {key!r} was used for another request to session {session_id!r}: "
            "send the same request again, or choose another key."
        )


class NotResumable(HelixError):
    """The session cannot be resumed in its current state."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        self.reason = reason
        super().__init__(f"Session {session_id!r} cannot be resumed: {reason}.")


class RunLost(HelixError):
    """This run no longer owns its session; it writes nothing more."""

    def __init__(self, session_id: str, run_id: str, why: str) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.why = why
        super().__init__(f"Run {run_id!r} of session {session_id!r} is lost: {why}. See can_resume() and resume().")


class ModelError(HelixError):
    """The model did not reply; `retryable` says whether a retry may help."""

    def __init__(self, sentence: str, *, retryable: bool = False, retry_after_seconds: float | None = None) -> None:
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        super().__init__(sentence)


class ToolsUnavailable(HelixError):
    """A toolset has no tools to offer, because its server does not respond; the run ends as failed."""


class DraftClosed(HelixError, RuntimeError):
    """A draft was used after the update that handed it out."""


class PatchError(HelixError, ValueError):
    """A JSON Patch that is malformed or does not fit the document; the document is unchanged."""


class StreamError(HelixError):
    """An error about one stream."""

    def __init__(self, stream_id: str, sentence: str) -> None:
        self.stream_id = stream_id
        super().__init__(sentence)


class StreamNotActive(StreamError):
    """The stream accepts no chunks in its current status."""

    def __init__(self, stream_id: str, status: str) -> None:
        self.status = status
        remedy = "call resume_stream() first" if status == "paused" else "write to a new stream, or reset this one"
        super().__init__(stream_id, f"Stream {stream_id!r} is {status} and accepts no chunks: {remedy}.")


class StreamFenced(StreamError):
    """A newer owner has raised the stream's fence; nothing was stored."""

    def __init__(self, stream_id: str, fence: int, current_fence: int) -> None:
        self.fence = fence
        self.current_fence = current_fence
        super().__init__(
            stream_id,
            f"Stream {stream_id!r} has a newer owner (fence {current_fence}, yours is {fence}): stop writing to it.",
        )


class StreamFailed(StreamError):
    """The producer declared the stream failed."""

    def __init__(self, stream_id: str, error: str) -> None:
        self.error = error
        super().__init__(stream_id, f"Stream {stream_id!r} failed: {error}")


class StreamTruncated(StreamError):
    """The cursor is before the first chunk that is still stored."""

    def __init__(self, stream_id: str, first_sequence: int, from_sequence: int = 0) -> None:
        self.first_sequence = first_sequence
        self.from_sequence = from_sequence
        super().__init__(
            stream_id,
            f"Stream {stream_id!r} no longer holds the chunk after {from_sequence}: the first one retained is "
            f"{first_sequence}. Resume from {first_sequence - 1}, or rebuild from the session's messages.",
        )


class StreamCursorAhead(StreamError):
    """The cursor is after the last chunk of the stream."""

    def __init__(self, stream_id: str, from_sequence: int, latest_sequence: int) -> None:
        self.from_sequence = from_sequence
        self.latest_sequence = latest_sequence
        super().__init__(
            stream_id,
            f"Stream {stream_id!r} ends at {latest_sequence}, before the cursor {from_sequence}: "
            "the cursor belongs to another stream.",
        )


class StoreError(HelixError):
    """The backend failed."""


class StoreUnavailable(StoreError):
    """The backend cannot be reached or cannot write now.

    `nothing_written` is True if that is certain (a lock, a full disk): an immediate retry would not help. False if the
    reply may have been lost.
    """

    def __init__(self, sentence: str, *, nothing_written: bool = False) -> None:
        self.nothing_written = nothing_written
        super().__init__(sentence)


class StoreCorrupt(StoreError):
    """The stored data cannot be read."""


class SchemaTooNew(StoreError):
    """The database belongs to a newer version of this library and is left untouched."""

    def __init__(self, found: int, supported: int) -> None:
        self.found = found
        self.supported = supported
        super().__init__(
            f"The database has schema version {found}, this library knows up to {supported}: upgrade helix-agents."
        )


class NotMigrated(StoreError):
    """The stores were opened without migrating, and there are none at this address, or their schema is older."""

    def __init__(self, place: str, found: int, needed: int) -> None:
        self.place = place
        self.found = found
        self.needed = needed
        what = f"The stores at {place} have schema version {found}, this library needs {needed}"
        remedy = f"migrate them first (`helix migrate --url {place}`)"
        if not found:
            what, remedy = f"There are no stores at {place}", "check the address, or create them with `helix migrate`"
        super().__init__(f"{what}: {remedy}.")
