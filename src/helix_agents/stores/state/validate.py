"""Validate the input of a store before anything is written."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec

from ...codec import MAX_COUNT, Json, decode, encode, ensure_count, ensure_exact, ensure_json, ensure_storable, is_json
from ...errors import InvalidArgument, NotSerializable, StoreCorrupt, shown
from ...ids import MAX_ID_LENGTH, ensure_id
from ...lifecycle import ensure_status
from ...messages import Message, ensure_message
from ...state import StepWrites, to_pointer
from ...types import OF_A_CALL, Owner, SessionState, StagedChanges, StagedKind, SubSessionRef

MAX_TAGS = 1_000
MAX_METADATA = 1_000
MAX_METADATA_LENGTH = 10_000
"""Labels are for finding sessions: larger values belong in custom state."""


def encoded_messages(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the texts of messages after checking each of them."""
    texts = []
    for message in ensure_many(messages, "messages"):
        if type(message) is not dict or type(message.get("role")) is not str or not is_json(message):
            ensure_message(message)  # raises an error that names the problem
        texts.append(encode(message))
    return tuple(texts)


def ensure_writes(writes: object) -> StepWrites:
    """Return the writes. Raises an error with a pointer into custom state.

    A dict `{"ops": [...], "warnings": [...]}` is also accepted.
    """
    if isinstance(writes, Mapping) and "ops" in writes and writes.keys() <= {"ops", "warnings"}:
        writes = StepWrites(writes["ops"], writes.get("warnings", []))
    if not isinstance(writes, StepWrites):
        raise InvalidArgument(
            f"Writes must be a StepWrites, not {type(writes).__name__}: use StateTracker.get_step_writes()."
        )
    ensure_many(writes.ops, "The ops of StepWrites")
    for op in writes.ops:
        _ensure_short_numbers(op)
        if type(op) is dict and is_json(op):
            continue
        if not isinstance(op, Mapping):
            raise InvalidArgument(f"An op of StepWrites must be a dict, not {type(op).__name__}.")
        path = op.get("path", [op.get("key")])
        pointer = to_pointer(path) if isinstance(path, list | tuple) and _is_path(path) else ""
        for member, value in op.items():
            if isinstance(value, tuple) and member in ("path", "items"):
                value = list(value)  # the frame of an op, not a value of the state
            ensure_json(value, pointer if member != "path" else "/path")
    for warning in ensure_many(writes.warnings, "The warnings of StepWrites"):
        ensure_text(warning, "A warning")
    return writes


def _ensure_short_numbers(op: object) -> None:
    """Reject numbers in an op's path that are too long to be shown in a warning."""
    if not isinstance(op, Mapping):
        return
    path = op.get("path")
    for token in (op.get("kind"), op.get("key"), *(path if isinstance(path, list | tuple) else ())):
        if token.__class__ is int and token.bit_length() > 64:
            raise NotSerializable("/path", "an integer of more than 64 bits")


def _is_path(path: Iterable[object]) -> bool:
    return all(token.__class__ in (str, int) for token in path)


def ensure_custom_state(value: object) -> None:
    """Check that custom state is a JSON object."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"Custom state must be a dict, not {type(value).__name__}.")
    if not isinstance(value, dict):
        raise NotSerializable("", type(value).__name__)
    ensure_json(value)


_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class _Sound(SessionState, frozen=True, array_like=True):
    """The fields of a session with their types and bounds, to check all of them at once.

    Structs do not check their fields when they are made, and a value of another type could not be read back.
    """

    step_count: _Count = 0
    resume_count: _Count = 0
    wake_at: _Count | None = None


def ensure_state(session_id: str, state: object) -> SessionState:
    """Check a session state that is to be stored under `session_id`."""
    if not isinstance(state, SessionState):
        raise InvalidArgument(f"A session's state must be a SessionState, not {type(state).__name__}.")
    if state.session_id != session_id:
        raise InvalidArgument(f"The given state belongs to session {state.session_id!r}, not to {session_id!r}.")
    try:
        msgspec.convert(msgspec.structs.astuple(state), _Sound)
    except msgspec.ValidationError:
        _ensure_types(state)  # raises an error that names the field
        ensure_count(state.step_count, "step_count")
        ensure_count(state.resume_count, "resume_count")
        if state.wake_at is not None:
            ensure_count(state.wake_at, "wake_at")
    ensure_labels(
        agent_type=state.agent_type,
        stream_id=state.stream_id or None,
        parent_session_id=state.parent_session_id,
        root_session_id=state.root_session_id,
        user_id=state.user_id,
        tags=state.tags,
        metadata=state.metadata,
        expires_at=state.expires_at,
    )
    if state.custom_state is not None:
        ensure_custom_state(state.custom_state)
    if state.output is not None:
        ensure_json(state.output, "/output")
    if state.interrupt_context is not None:
        ensure_json(state.interrupt_context, "/interrupt_context")
    if state.queued_messages:
        ensure_json(state.queued_messages, "/queued_messages")
    for call_id, call in state.pending_client_tool_calls.items():
        ensure_json(call.input, f"/pending_client_tool_calls{to_pointer([call_id])}/input")
        if call.asked is not None:
            ensure_json(call.asked.question, f"/pending_client_tool_calls{to_pointer([call_id])}/asked")
        ensure_json(call.response, f"/pending_client_tool_calls{to_pointer([call_id])}/response")
    return state


def _ensure_types(value: SessionState | SubSessionRef) -> None:
    """Check the type of every field."""
    try:
        msgspec.convert(msgspec.structs.asdict(value), type(value))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"Invalid {type(value).__name__}: {error!s:.300}") from error


def ensure_labels(
    *,
    agent_type: str,
    stream_id: str | None,
    parent_session_id: str | None,
    root_session_id: str | None,
    user_id: str | None,
    tags: Sequence[str],
    metadata: Mapping[str, str] | None,
    expires_at: int | None,
) -> None:
    """Check the labels of a session."""
    ensure_id(agent_type, "agent_type")
    if stream_id is not None:
        ensure_id(stream_id, "stream_id")
    if parent_session_id is not None:
        ensure_id(parent_session_id, "parent_session_id")
    if root_session_id is not None:
        ensure_id(root_session_id, "root_session_id")
    if user_id is not None:
        ensure_id(user_id, "user_id")
    if tags != ():
        ensure_tags(tags)
    ensure_metadata(metadata)
    if expires_at is not None:
        ensure_count(expires_at, "expires_at")


def ensure_tags(tags: Sequence[str]) -> None:
    """Check the tags of a session or a filter."""
    given = tuple(ensure_many(tags, "tags"))
    if len(given) > MAX_TAGS:
        raise InvalidArgument(f"A session has at most {MAX_TAGS} tags, not {len(given)}.")
    for tag in given:
        ensure_id(tag, "A tag")


def ensure_metadata(metadata: Mapping[str, str] | None) -> None:
    """Check the metadata of a session or a filter."""
    if metadata is None:
        return
    if metadata.__class__ is not dict and not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata must be a dict of strings, not {type(metadata).__name__}.")
    if len(metadata) > MAX_METADATA:
        raise InvalidArgument(f"A session has at most {MAX_METADATA} entries of metadata, not {len(metadata)}.")
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidArgument(f"metadata must map strings to strings, not {shown(key)} to {shown(text)}.")
        if len(key) > MAX_ID_LENGTH or len(text) > MAX_METADATA_LENGTH:
            raise InvalidArgument(
                f"metadata {shown(key)}: a key has at most {MAX_ID_LENGTH} characters and a value "
                f"{MAX_METADATA_LENGTH}, not {len(key)} and {len(text)}. Keep what is larger in custom state."
            )
        if not (key.isascii() and text.isascii()):
            ensure_exact({key: text}, "/metadata")


def ensure_choice(value: object, choices: Any, what: str) -> None:
    """Raise unless the value is one of a `Literal`."""
    if value not in get_args(choices):
        raise InvalidArgument(f"Invalid {what}: {shown(value)}. Known: {', '.join(get_args(choices))}.")


def ensure_staged_name(call: StagedChanges) -> None:
    """Reject a staged row without a valid name: calls have an id, rows of other kinds do not."""
    ensure_choice(call.kind, StagedKind, "kind of a staged row")
    if call.kind in OF_A_CALL:
        ensure_id(call.tool_call_id, "tool_call_id")
    elif call.tool_call_id:
        raise InvalidArgument(f"A staged row of kind {call.kind!r} belongs to the step: leave tool_call_id empty.")


def ensure_many(value: Any, what: str) -> Iterable[Any]:
    """Check that the value is a sequence, not a single item."""
    if value.__class__ in (list, tuple):
        return value  # the common case; the check below is slow
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{what} must be a list, not {type(value).__name__}.")
    return value


def ensure_text(value: object, what: str) -> None:
    """Check that a value is a string."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string, not {shown(value)}.")


def ensure_ref(ref: object) -> SubSessionRef:
    """Check a ref that is to be stored."""
    if not isinstance(ref, SubSessionRef):
        raise InvalidArgument(f"A sub-session ref must be a SubSessionRef, not {type(ref).__name__}.")
    _ensure_types(ref)
    ensure_id(ref.sub_session_id, "sub_session_id")
    ensure_id(ref.agent_type, "agent_type")
    ensure_id(ref.parent_tool_call_id, "parent_tool_call_id")
    if ref.mode.__class__ is not str or ref.mode not in ("ephemeral", "persistent"):
        raise InvalidArgument(f"A ref's mode must be 'ephemeral' or 'persistent', not {shown(ref.mode)}.")
    if not isinstance(ref.status, str):
        raise InvalidArgument(f"A ref's status must be a string, not {shown(ref.status)}.")
    ensure_storable(ref.remote, "/remote")
    return ref


def ensure_optional(
    *,
    texts: Mapping[str, object] | None = None,
    ids: Mapping[str, object] | None = None,
    counts: Mapping[str, object] | None = None,
) -> None:
    """Check optional arguments by name: strings, ids and integers."""
    for what, value in (ids or {}).items():
        if value is not None:
            ensure_id(value, what)
    for what, value in (texts or {}).items():
        if value is not None:
            ensure_text(value, what)
    for what, value in (counts or {}).items():
        if value is not None:
            ensure_count(value, what)


def ensure_guards(*, expected_version: object = None, owner: object = None, new_epoch: object = None) -> None:
    """Check the guards of a write; None means no guard."""
    if expected_version is not None:
        ensure_count(expected_version, "expected_version")
    if owner is not None:
        if not isinstance(owner, Owner):
            raise InvalidArgument(f"owner must be an Owner, not {type(owner).__name__}.")
        ensure_id(owner.incarnation, "owner.incarnation")
        if owner.epoch is not None:
            ensure_count(owner.epoch, "owner.epoch")
    if new_epoch is not None and ensure_count(new_epoch, "new_epoch") == 0:
        raise InvalidArgument("new_epoch must be positive, not 0.")


def ensure_signed_offset(value: object) -> int:
    """Check the offset to read from; a negative one counts from the end."""
    ensure_count(abs(value) if value.__class__ is int else value, "offset")
    return value  # type: ignore[return-value]


def to_cursor(*place: int | str) -> str:
    """Return the cursor after a session in a listing, opaque to callers: numbers, then the session's id."""
    return base64.urlsafe_b64encode(encode(list(place)).encode()).decode().rstrip("=")


def from_cursor(cursor: str, numbers: int) -> tuple[Any, ...]:
    """Return the numbers and the id that `to_cursor` was given."""
    try:
        parts: Json = decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        *counts, session_id = parts
        if len(counts) != numbers:
            raise ValueError("this cursor is that of another listing")
    except (ValueError, TypeError, AttributeError, RecursionError, StoreCorrupt) as error:
        raise InvalidArgument(f"Invalid cursor {shown(cursor)}: use the next_cursor of an earlier page.") from error
    try:
        return (*(ensure_count(each, "a cursor") for each in counts), ensure_id(session_id, "session_id"))
    except InvalidArgument as error:
        raise InvalidArgument(f"Invalid cursor {shown(cursor)}: use the next_cursor of an earlier page.") from error


def ensure_run_metadata(metadata: object) -> None:
    """Check the metadata of a run."""
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"The metadata of a run must be a dict, not {type(metadata).__name__}.")
    ensure_storable(dict(metadata), "/metadata")


def ensure_ids(values: Any, name: str) -> tuple[str, ...]:
    """Check a list of ids; a single string is most likely a mistake."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name} must be a list of names, not {shown(values)}.")
    return tuple(ensure_id(each, name) for each in values)


def one_or_many(value: Any) -> tuple[str, ...]:
    """Check one or several statuses."""
    if value is None:
        return ()
    if not isinstance(value, Iterable):
        raise InvalidArgument(f"Expected a status or a list of statuses, not {shown(value)}.")
    statuses = (value,) if isinstance(value, str) else tuple(value)
    for status in statuses:
        ensure_status("session", status)
    return statuses
