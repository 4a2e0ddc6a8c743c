"""The options, messages and initial state of a request to run an agent, validated."""

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
from .session.branching import BranchStart
from .session.observe import Found
from .session.queued_messages import IfExists, IfRunning

Input = str | Message | Sequence[Message]


class RunOptions(TypedDict, total=False):
    """The keyword arguments that `execute` and `submit` share.

    `user_id`: the owner of the session; a session of another user raises `SessionNotFound`. `tags`, `metadata`,
    `expires_at`, `custom_state` (instead of the agent's own): for a new session; ignored if it exists. `limits`: what
    the run may use, besides the agent's limits; they also apply to runs that resume it. `idempotency_key`: the same key
    for the same session returns the run that it started before and starts nothing. If that run's process died, the run
    is continued once its lease has expired. With a different request it raises `IdempotencyConflict`. Without a
    `session_id`, the key and the `user_id` determine the session.
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
    """The keyword arguments of `submit`.

    `not_before`: the earliest time at which workers may start the run, as epoch milliseconds or a `datetime` with a
    zone.
    """

    not_before: int | datetime | None


class BranchOptions(TypedDict, total=False):
    """The keyword arguments of `regenerate` and `edit`: the options of `execute` for an existing session.

    `if_running`: only `"reject"` and `"interrupt"`.
    """

    user_id: str | None
    limits: UsageLimits | None
    idempotency_key: str | None
    deps: Any
    if_running: IfRunning


class ExecuteOptions(RunOptions, total=False):
    """The keyword arguments of `execute`.

    `deps`: the value of `ToolContext.deps`; never stored, so a caller that resumes the run passes it again, unless the
    executor has a `deps_factory`. `if_exists="reject"`: the session must be new; raises `SessionExists`, and
    `AlreadyRunning` if another process creates it concurrently. `if_running`, for a session that is running:
    `"reject"` raises `AlreadyRunning`; `"enqueue"` stores the input for that run, which reads it with its next step,
    and returns its handle; `"interrupt"` stops that run at the next safe point and continues with the input.
    """

    deps: Any
    if_exists: IfExists
    if_running: IfRunning


@dataclass(frozen=True)
class Request:
    """A validated request to run an agent."""

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
    branch_at: BranchStart | None = None
    """The message at which the run starts a new branch; None if it follows the conversation."""
    expected: Found | None = None
    """The session that the request is for, as it was read; None: any session with the id."""

    @property
    def id(self) -> str:
        """The session's id, once it has been determined."""
        assert self.session_id is not None
        return self.session_id

    @property
    def fingerprint(self) -> list[Json]:
        """What must be equal when the request is repeated with its idempotency key."""
        names = ("metadata", "expires_at", "custom_state")
        given = [self.session_options[name] for name in names]
        fields = [self.agent.name, self.messages, list(self.session_options["tags"]), *given]
        return fields if self.branch_at is None else [*fields, *self.branch_at]


def read_request(agent: Agent, input: Input, options: Mapping[str, Any]) -> Request:
    """Validate the options and return a request. Raises `InvalidArgument`."""
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
    """Return the initial state of a session, from plain data or an instance of a state type."""
    return custom_state if custom_state is None or isinstance(custom_state, Mapping) else initial_state(custom_state)


def as_messages(input: Input) -> list[Message]:
    """Return the messages of an input. Raises `InvalidArgument` if it is not one."""
    if isinstance(input, str):
        return [{"role": "user", "content": input}]
    given = [input] if isinstance(input, Mapping) else input
    if not isinstance(given, Sequence) or not all(isinstance(message, Mapping) for message in given):
        raise InvalidArgument(f"input must be a string, a message or a list of messages, not {type(input).__name__}.")
    messages = [dict(message) for message in given]
    for message in messages:
        ensure_sayable(message)
    broken = broken_pair(messages)
    if broken is not None:
        raise InvalidArgument(f"The input is not a full conversation: {broken}. Pass results to submit_tool_result().")
    return messages


def ensure_messages(messages: Sequence[Message]) -> None:
    """Raise `InvalidArgument` for a turn without messages: there is nothing to send to a model."""
    if not messages:
        raise InvalidArgument("The input has no messages: a turn starts with at least one.")


def _ensure_allowed(if_exists: str, if_running: str, idempotency_key: str | None) -> None:
    if if_exists not in get_args(IfExists):
        raise InvalidArgument(f"Invalid if_exists {if_exists!r}: expected one of {get_args(IfExists)}.")
    if if_running not in get_args(IfRunning):
        raise InvalidArgument(f"Invalid if_running {if_running!r}: expected one of {get_args(IfRunning)}.")
    if if_running == "enqueue" and idempotency_key is not None:
        raise InvalidArgument("if_running='enqueue' cannot be combined with idempotency_key: it may not start a run.")
    if if_exists == "reject" and if_running != "reject":
        raise InvalidArgument("if_exists='reject' cannot be combined with if_running: a new session is not running.")
