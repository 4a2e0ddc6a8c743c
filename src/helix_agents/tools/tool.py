"""Tools: Python functions that a model may call, and the context that such a function may ask for.

A tool knows its name, its schema, how long it may take and who executes it. It knows nothing of sessions being stored
or of the model's messages: the executor hands it arguments and a `ToolContext` and gets a JSON value back.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, overload

from ..codec import Json
from ..errors import InvalidArgument, NotSerializable
from ..llm.contract import ToolSpec
from ..schema.docstrings import split_docstring
from ..schema.signature import InputModel, context_arguments, find_context, input_model, state_schema
from ..state import view
from ..values import to_json
from .calling import contained, in_thread
from .context import ToolContext
from .effects import AfterRestore, Check, EffectKeyRule, EffectKind, EffectOptions, Undo, called
from .schema_input import SchemaInput

Execution = Literal["server", "client"]
Condition = Callable[[Any], bool]
"""A condition on the committed custom state: plain, or converted to the annotation of its parameter."""
SchemaCall = Callable[[dict[str, Any], ToolContext], Any]
"""The function of a tool made from a schema."""
ApprovalRule = bool | Callable[[dict[str, Any]], bool | Awaitable[bool]]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_RETRIES = 20
UNDO_PREFIX = "undo:"
"""The prefix of tools that undo what others did. No user's tool has such a name."""
UNDO_SECONDS = 60.0
"""How long an undo may take if its tool has no `timeout_seconds`. After that its outcome is unknown."""
TAKEN_BACK = "Taken back."


class Tool:
    """A function as a tool. Still callable, so that it can be tested without an agent."""

    execute: Execution = "server"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float | None = None,
        requires_approval: ApprovalRule = False,
        execute: Execution = "server",
        deadline_seconds: float | None = None,
        idempotent: bool = False,
        retries: int = 0,
        sequential: bool = False,
        when: Condition | None = None,
        max_result_chars: int | None = None,
        local_names: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        effect: EffectKind | None = None,
        key: EffectKeyRule | None = None,
        check: Check | None = None,
        undo: Undo | None = None,
        after_restore: AfterRestore = "ask",
    ) -> None:
        """Create a tool. `local_names`: names that annotations may use besides those of the function's module.

        `schema`: a JSON schema of the input, used instead of the signature; see `from_schema`.
        """
        if not callable(function) or (name is None and not hasattr(function, "__name__")):
            raise InvalidArgument(f"@tool needs a function, not {function!r}. To name it, write @tool(name=...).")
        if execute not in ("server", "client"):
            raise InvalidArgument(f"execute must be 'server' or 'client', not {execute!r}.")
        if not isinstance(requires_approval, bool) and not callable(requires_approval):
            raise InvalidArgument(
                f"requires_approval must be a bool or a function of the arguments, not {requires_approval!r}."
            )
        self.name = _tool_name(function.__name__ if name is None else name)
        _ensure_seconds(self.name, timeout_seconds, "timeout_seconds")
        _ensure_seconds(self.name, deadline_seconds, "deadline_seconds")
        self.description = inspect.cleandoc(description) if description else split_docstring(function.__doc__)[0]
        self.timeout_seconds = timeout_seconds
        self.deadline_seconds = deadline_seconds
        self.execute = execute
        self.idempotent = idempotent or effect == "read"
        self.retries = _retries(self.name, retries)
        self.effects = EffectOptions(effect, key, check, undo, after_restore)
        self.effects.ensure_valid(self.name, retries=self.retries, idempotent=idempotent, client=execute == "client")
        self.sequential = sequential
        self.max_result_chars = max_result_chars
        self._when = when
        self._when_sees = state_schema(when, local_names)
        if when is not None and not callable(when):
            raise InvalidArgument(f"Tool {self.name!r}: when must be a function of the state, not {when!r}.")
        self._requires_approval = requires_approval
        self._function = function
        self._read_signature(schema, local_names)

    def _read_signature(self, schema: Mapping[str, Any] | None, local_names: Mapping[str, Any] | None) -> None:
        """Read the parameters of the function."""
        function = self._function
        if schema is not None:
            self.needs_deps, self.state_type, self._context_name = False, None, None
            self.input: InputModel | SchemaInput = SchemaInput(self.name, schema)
            return
        self._context_name = find_context(function, ToolContext, local_names)
        asked = context_arguments(function, ToolContext, local_names)
        self.needs_deps = bool(asked) and asked[0] not in (Any, None, type(None))
        self.state_type = asked[1] if len(asked) > 1 and asked[1] is not Any else None
        skip = frozenset({self._context_name} if self._context_name else ())
        self.input = input_model(function, skip=skip, local_names=local_names)

    @classmethod
    def from_schema(
        cls, name: str, description: str, schema: Mapping[str, Any], call: SchemaCall, **options: Any
    ) -> Tool:
        """Make a tool whose input is described by a JSON schema, such as a tool of another system.

        `call(arguments, context)` gets the model's arguments as a dict, unchecked beyond being an object; it may be
        sync or async. `options` are those of `@tool`.
        """
        if not callable(call):
            raise InvalidArgument(f"Tool {name!r}: call must be a function of arguments and context, not {call!r}.")
        return cls(call, name=name, description=description, schema=schema, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def as_undo(self) -> Tool | None:
        """Return the tool that undoes one effect of this one; None if there is none."""
        undo = self.effects.undo
        if undo is None:
            return None

        async def take_back(arguments: dict[str, Any], _: ToolContext) -> str:
            await called(undo, arguments["arguments"], arguments["result"], arguments["effect_key"])
            return TAKEN_BACK

        limit = self.timeout_seconds or UNDO_SECONDS
        made = Tool(take_back, name="undo", schema={}, effect="once", sequential=True, timeout_seconds=limit)
        made.name = UNDO_PREFIX + self.name
        return made

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(self.name, self.description, self.input.schema)

    @property
    def requires_approval(self) -> bool | None:
        """Whether a person must agree to every call; None if that depends on the arguments."""
        return self._requires_approval if isinstance(self._requires_approval, bool) else None

    def is_offered(self, state: Any) -> bool:
        """Return whether the model is offered the tool in this custom state."""
        if self._when is None:
            return True
        try:
            return bool(self._when(state if self._when_sees is None else view(state, self._when_sees)))
        except Exception as error:
            raise InvalidArgument(
                f"The condition of tool {self.name!r} failed: {type(error).__name__}: {error}"
            ) from error

    @property
    def is_async(self) -> bool:
        """Whether the function runs in the event loop, where it can be cancelled."""
        return inspect.iscoroutinefunction(self._function)

    @property
    def happens_once(self) -> bool:
        """Whether a call must never run again while its outcome is unknown."""
        return self.effects.kind == "once"

    @property
    def asks_outside(self) -> bool:
        """Whether a call may have to wait for a person or a client."""
        return self.execute == "client" or self._requires_approval is not False

    async def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Return whether a person must agree before these arguments may run."""
        rule = self._requires_approval
        if isinstance(rule, bool):
            return rule
        verdict = rule(arguments)
        return bool(await verdict if inspect.isawaitable(verdict) else verdict)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Json:
        """Call the function with parsed arguments; a sync one in its own thread. Returns JSON.

        Raises what the function raises; `ToolEscape` for what would end more than the function.
        """
        call = functools.partial(self._function, **arguments)
        if isinstance(self.input, SchemaInput):
            call = functools.partial(self._function, arguments, context)
        elif self._context_name:
            call = functools.partial(call, **{self._context_name: context})
            context.see_state_as(self.state_type)
        if self.is_async:
            answer = await contained(call())
        else:
            answer = await in_thread(call)
            if inspect.isawaitable(answer):
                answer = await contained(answer)
        context.returned = True
        context.ensure_untouched()
        try:
            return to_json(answer)
        except NotSerializable as error:
            raise AnswerNotJson(error.path, error.type_name) from error


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float | None = None,
    requires_approval: ApprovalRule = False,
    execute: Execution = "server",
    deadline_seconds: float | None = None,
    idempotent: bool = False,
    retries: int = 0,
    sequential: bool = False,
    when: Condition | None = None,
    max_result_chars: int | None = None,
    effect: EffectKind | None = None,
    key: EffectKeyRule | None = None,
    check: Check | None = None,
    undo: Undo | None = None,
    after_restore: AfterRestore = "ask",
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a function; its signature is the schema, its docstring the description.

    `timeout_seconds`: after that the call is an error for the model. `requires_approval`: a person must agree first
    (or a function of the arguments says whether). `execute="client"`: answered from outside, the body never runs.
    `deadline_seconds`: how long an answer or approval is waited for. `idempotent=True`: may run again after a crash, so
    that its outcome need not be made durable before the step's commit. `retries`: how often a call that raised is
    repeated before the model reads the error; not for a `ModelRetry`, which is for the model. `sequential=True`: calls
    of such tools run one after the other, in the model's order. `when`: a function of the custom state that says
    whether the model has the tool at all in this step. `max_result_chars`: a longer result is stored as an artifact.

    `effect`: `"read"` changes nothing and may run again; `"idempotent"` may run again with the same `ctx.effect_key`;
    `"once"` never runs twice: if a crash or a timeout leaves its outcome unknown, `check(arguments, key)` returns
    `Done(result)`, `NotDone()` or None, and unless it decides, a person is asked. `key(arguments)` names the effect
    beyond the call: a second call with the same key gets the recorded result. `after_restore`: what a repeated call
    does after the session was restored or forked to before the effect: `"ask"`, `"replay"` the recorded result, or
    `"run"`. `undo(arguments, result, key)` takes the effect back if the turn fails or is aborted: of all effects of
    the turn the latest first, each exactly once.
    """
    if function is not None:
        return Tool(function, local_names=_names_of_caller())
    return lambda decorated: Tool(decorated, local_names=_names_of_caller(), **options)


def _names_of_caller() -> Mapping[str, Any]:
    """Return the names defined where a function is decorated: annotations may be strings that name local classes."""
    frame = sys._getframe(2)
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _tool_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"Invalid tool name {name!r}: models accept 1 to 64 letters, digits, '_' and '-'. Set name=..."
        )
    return name


def _ensure_seconds(name: str, seconds: float | None, what: str) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InvalidArgument(f"Tool {name!r}: {what} must be positive, not {seconds!r}.")


def _retries(name: str, retries: object) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_RETRIES:
        raise InvalidArgument(f"Tool {name!r}: retries must be a number from 0 to {MAX_RETRIES}, not {retries!r}.")
    return retries


class ModelRetry(Exception):
    """Raise it in a tool to tell the model what to do differently: its text is the call's result, as an error."""


class AnswerNotJson(NotSerializable):
    """A tool's return value is not JSON; a value that it stored elsewhere (state, a chunk) is an ordinary error."""
