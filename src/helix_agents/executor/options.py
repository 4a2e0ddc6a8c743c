"""What a caller gives to a run: options, messages and a first state, checked and as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, get_args

from ..agent import Agent
from ..codec import Json
from ..errors import InvalidArgument
from ..history import broken_pair
from ..ids import ensure_own_id
from ..limits import UsageLimits
from ..messages import Message, ensure_sayable
from ..state import initial_state
from .later.timetable import moment_of
from .session.branching import Detour
from .session.observe import Found
from .session.queued_messages import IfExists, IfRunning

Input = str | Message | Sequence[Message]


class RunOptions(TypedDict, total=False):
    """What `execute` and `submit` take by name.

    `user_id`: the user that the session belongs to; a session of another user raises `SessionNotFound`. `tags`,
    `metadata`, `expires_at`, `custom_state` (instead of the agent's own): for a new session; ignored if it exists.
    `limits`: what the run may spend, besides the limits of the agent; they also hold for runs that resume it.

    `idempotency_key`: the same key for the same session returns the run that it started before and starts nothing. If
    that run's process died, it is continued once its lease has expired. With another request it raises
    `IdempotencyConflict`. Without a `session_id`, the key and the `user_id` choose the session.
    """

    session_id: str | None
    user_id: str | None
    tags: Sequence[str]
    metadata: Mapping[str, str] | None
    expires_at: int | None
    custom_state: Mapping[str, Json] | object | None
    limits: UsageLimits | None
    idempotency_key: str | None


class SubmitOptions(RunOptions, total=False):
    """What `submit` takes by name, besides what `execute` also takes.

    `not_before`: when workers may start the run at the earliest, as epoch milliseconds or a `datetime` with a zone.
    """

    not_before: int | datetime | None


class BranchOptions(TypedDict, total=False):
    """What `regenerate` and `edit` take by name: those options of `execute` that concern a session which exists.

    `if_running`: only `"reject"` and `"interrupt"`.
    """

    user_id: str | None
    limits: UsageLimits | None
    idempotency_key: str | None
    deps: Any
    if_running: IfRunning


class ExecuteOptions(RunOptions, total=False):
    """What `execute` takes by name, besides what `submit` also takes.

    `deps`: what tools find at `ToolContext.deps`; never stored, so a caller that resumes the run gives it again, unless
    the executor has a `deps_factory`. `if_exists="reject"`: the session must be new; raises `SessionExists`, and
    `AlreadyRunning` if another process creates it at the same moment. `if_running`, for a session that is running:
    `"reject"` raises `AlreadyRunning`; `"enqueue"` stores the input for that run, which reads it with its next step,
    and returns its handle; `"interrupt"` stops that run at the next safe point and continues with the input.
    """

    deps: Any
    if_exists: IfExists
    if_running: IfRunning


@dataclass(frozen=True)
class Request:
    """A request to run an agent, checked."""

    agent: Agent
    messages: list[Message]
    session_id: str | None
    user_id: str | None
    session_options: Mapping[str, Any]
    deps: Any = None
    if_exists: IfExists = "continue"
    if_running: IfRunning = "reject"
    key: str | None = None
    limits: UsageLimits | None = None
    not_before: int | None = None
    detour: Detour | None = None
    """The message at which the run leaves the conversation, if it does not follow it."""
    meant_for: Found | None = None
    """The session as the request found it; another one with its id does not get it. None: whichever has the id."""

    @property
    def id(self) -> str:
        """The session's id, once it has been chosen."""
        assert self.session_id is not None
        return self.session_id

    @property
    def fingerprint(self) -> list[Json]:
        """What must be the same if the request comes again with its idempotency key."""
        names = ("metadata", "expires_at", "custom_state")
        given = [self.session_options[name] for name in names]
        asked = [self.agent.name, self.messages, list(self.session_options["tags"]), *given]
        return asked if self.detour is None else [*asked, *self.detour]


def read_request(agent: Agent, input: Input, options: Mapping[str, Any]) -> Request:
    """Return a request with its options checked. Raises `InvalidArgument`."""
    unknown = options.keys() - ExecuteOptions.__annotations__.keys() - SubmitOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"Unknown option {sorted(unknown)[0]!r}.")
    session_id, limits = options.get("session_id"), options.get("limits")
    if_exists, if_running = options.get("if_exists", "continue"), options.get("if_running", "reject")
    key, not_before = options.get("idempotency_key"), options.get("not_before")
    _ensure_allowed(if_exists, if_running, key)
    return Request(
        agent,
        as_messages(input),
        None if session_id is None else ensure_own_id(session_id, "session_id"),
        options.get("user_id"),
        {
            "user_id": options.get("user_id"),
            "tags": options.get("tags", ()),
            "metadata": options.get("metadata"),
            "expires_at": options.get("expires_at"),
            "custom_state": as_state(options.get("custom_state")),
        },
        options.get("deps"),
        if_exists,
        if_running,
        key,
        limits,
        None if not_before is None else moment_of(not_before, "not_before"),
    )


def as_state(custom_state: object) -> Mapping[str, Json] | None:
    """Return the first state of a session, given as plain data or as an instance of a state type."""
    return custom_state if custom_state is None or isinstance(custom_state, Mapping) else initial_state(custom_state)


def as_messages(input: Input) -> list[Message]:
    """Return the messages of an input. Raises `InvalidArgument` if it is not one."""
    if isinstance(input, str):
        return [{"role": "user", "content": input}]
    given = [input] if isinstance(input, Mapping) else input
    if not isinstance(given, Sequence) or not all(isinstance(message, Mapping) for message in given):
        raise InvalidArgument(f"The input is a text, a message or a list of messages, not {type(input).__name__}.")
    messages = [dict(message) for message in given]
    for message in messages:
        ensure_sayable(message)
    broken = broken_pair(messages)
    if broken is not None:
        raise InvalidArgument(f"The input is not a whole conversation: {broken}. Results go to submit_tool_result().")
    return messages


def ensure_said(messages: Sequence[Message]) -> None:
    """Reject a turn without a message: there is nothing to ask a model."""
    if not messages:
        raise InvalidArgument("The input has no messages: a turn begins with at least one.")


def _ensure_allowed(if_exists: str, if_running: str, idempotency_key: str | None) -> None:
    if if_exists not in get_args(IfExists):
        raise InvalidArgument(f"Invalid if_exists {if_exists!r}: expected one of {get_args(IfExists)}.")
    if if_running not in get_args(IfRunning):
        raise InvalidArgument(f"Invalid if_running {if_running!r}: expected one of {get_args(IfRunning)}.")
    if if_running == "enqueue" and idempotency_key is not None:
        raise InvalidArgument("if_running='enqueue' does not go with an idempotency_key: it may start no run.")
    if if_exists == "reject" and if_running != "reject":
        raise InvalidArgument("if_exists='reject' does not go with if_running: a new session is not running.")
