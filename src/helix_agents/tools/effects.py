"""The effect of a tool on the outside world, and how to check whether it happened: `@tool(effect=, key=, check=,
undo=)`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..codec import Json
from ..errors import InvalidArgument, shown
from .calling import contained, in_thread

EffectKind = Literal["read", "idempotent", "once"]
AfterRestore = Literal["ask", "replay", "run"]

MAX_KEY_LENGTH = 200


@dataclass(frozen=True)
class Done:
    """The verdict of a check: the effect happened, and this is what the call returns."""

    result: Json = None


@dataclass(frozen=True)
class NotDone:
    """The verdict of a check: the effect has not happened and will not happen by itself; the call may run."""


class OutcomeUnknown(Exception):
    """Raise it in a tool that cannot say whether its effect happened, such as after a lost connection.

    With `effect="once"`, the tool's check or a person decides. Otherwise its text is an error for the model.
    """


Verdict = Done | NotDone | None
"""None: the check cannot say. Then a person is asked."""
EffectKeyRule = Callable[[dict[str, Any]], str]
Check = Callable[[dict[str, Any], str], Verdict | Awaitable[Verdict]]
Undo = Callable[[dict[str, Any], Json, str], object]
"""Undoes an effect, given the call's arguments, its result and its effect key. Its return value is ignored."""


@dataclass(frozen=True)
class EffectOptions:
    """What a tool declares about its effect. `kind` is None if it declares nothing."""

    kind: EffectKind | None = None
    key: EffectKeyRule | None = None
    check: Check | None = None
    undo: Undo | None = None
    after_restore: AfterRestore = "ask"

    def ensure_valid(self, name: str, *, retries: int, idempotent: bool, client: bool) -> None:
        """Raise `InvalidArgument` for options that contradict each other."""
        if self.kind is not None and self.kind not in get_args(EffectKind):
            raise InvalidArgument(
                f"Tool {name!r}: effect must be 'read', 'idempotent' or 'once', not {shown(self.kind)}."
            )
        if self.after_restore not in get_args(AfterRestore):
            raise InvalidArgument(
                f"Tool {name!r}: after_restore must be 'ask', 'replay' or 'run', not {shown(self.after_restore)}."
            )
        for option, function in (("key", self.key), ("check", self.check), ("undo", self.undo)):
            if function is not None and not callable(function):
                raise InvalidArgument(f"Tool {name!r}: {option} must be a function, not {shown(function)}.")
        if self.kind == "once":
            if idempotent:
                raise InvalidArgument(f"Tool {name!r}: effect='once' contradicts idempotent=True. Remove one of them.")
            if client:
                raise InvalidArgument(f"Tool {name!r}: effect='once' is for tools that run here, not in the client.")
            if retries and self.check is None:
                raise InvalidArgument(
                    f"Tool {name!r}: effect='once' with retries needs check=, which says before each retry whether "
                    "the failed attempt took effect."
                )
        elif self.check is not None:
            raise InvalidArgument(f"Tool {name!r}: check requires effect='once'.")
        if self.undo is not None and self.kind not in ("once", "idempotent"):
            raise InvalidArgument(f"Tool {name!r}: undo requires effect='once' or effect='idempotent'.")

    def key_of(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Return the key of the effect of these arguments; None for a tool without `key`.

        Raises `InvalidArgument` if the tool's `key` raises or does not return a short string.
        """
        if self.key is None:
            return None
        try:
            key = self.key(arguments)
        except Exception as error:
            raise InvalidArgument(f"The key of tool {name!r} failed: {type(error).__name__}: {error}") from error
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
            raise InvalidArgument(
                f"The key of tool {name!r} must be a string of 1 to {MAX_KEY_LENGTH} characters, not {shown(key)}."
            )
        return f"{name}:{key}"


async def called(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function, sync or async, so that it can block or cancel only itself."""
    if inspect.iscoroutinefunction(function):
        return await contained(function(*args))
    answer = await in_thread(lambda: function(*args))
    return await contained(answer) if inspect.isawaitable(answer) else answer
