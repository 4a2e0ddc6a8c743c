"""Hooks: observe runs, steps, model calls and tools. An error in a hook is logged and changes nothing.

Derive from `Hooks`, override what you need, and pass it to the executor. `helix_agents.telemetry` has examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...llm.contract import TokenUsage
from ...messages import Message
from ...safe_text import get_logger
from ...types import TracingContext
from ..step.decisions import Outcome

logger = get_logger("helix_agents.executor")


INTERRUPTED = "interrupted"
"""The `error` of a model call that was cut off because the run was stopped."""


class RunInfo(msgspec.Struct, frozen=True):
    """The run that an event belongs to. `tracing_context` was stored by an earlier run of the session.

    `parent_run_id` and `parent_tool_call_id` identify the call that a sub-agent's run works for.
    `model` and `provider` are the adapter's attributes of these names, if it has them.
    """

    session_id: str
    run_id: str
    agent_type: str
    turn: int = 1
    parent_run_id: str | None = None
    parent_tool_call_id: str | None = None
    tracing_context: TracingContext | None = None
    model: str | None = None
    provider: str | None = None


class ModelAnswer(msgspec.Struct, frozen=True):
    """Metadata of a model's reply. `model` is the name that the provider returned."""

    requested_model: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None


class Hooks:
    """The events to observe; override the methods you need."""

    async def run_started(self, run: RunInfo) -> TracingContext | None:
        """A run starts or continues. The returned context is stored and passed to the hooks of later runs."""
        return None

    async def run_ended(self, run: RunInfo, status: str, error: str | None) -> None:
        """The run ended or was suspended, with the session's status; "lost" if another process took over."""

    async def step_started(self, run: RunInfo, step: int) -> None:
        """A step starts, or an open one is continued."""

    async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
        """A step was committed or suspended; `status` is the session's."""

    async def writes_lost(self, run: RunInfo, step: int, warnings: Sequence[str]) -> None:
        """A step was committed in which parallel tools overwrote each other's writes; one sentence for each."""

    async def model_started(self, run: RunInfo, step: int, attempt: int) -> None:
        """The model is about to be called."""

    async def model_answered(self, run: RunInfo, step: int, answer: ModelAnswer) -> None:
        """The model completed its reply: which model, why it stopped, what it used. `model_ended` follows."""

    async def model_ended(self, run: RunInfo, step: int, message: Message | None, error: str | None) -> None:
        """The model replied or failed; `error` is `"interrupted"` if the reply was cut off because the run was stopped.

        `message` has a `finish_reason` if the model gave one.
        """

    async def tool_started(self, run: RunInfo, step: int, call: dict[str, Any]) -> None:
        """A tool call (`id`, `name`, `arguments`) starts."""

    async def tool_ended(self, run: RunInfo, step: int, call: dict[str, Any], outcome: Outcome) -> None:
        """A tool call has its outcome. The last outcomes of a step may become durable only with its commit."""


class HookCaller:
    """Calls all hooks for one run; an error in one of them is logged."""

    def __init__(self, hooks: Sequence[Hooks], run: RunInfo) -> None:
        self._hooks = hooks
        self._run = run

    async def start(self) -> TracingContext | None:
        """Call `run_started` of all hooks; return the tracing context that one of them returned."""
        given: TracingContext | None = None
        for hook in self._hooks:
            answer = await self._guard(hook.run_started)
            given = answer if isinstance(answer, TracingContext) else given
        return given

    async def call(self, name: str, *args: Any) -> None:
        """Call the method `name` of all hooks."""
        for hook in self._hooks:
            await self._guard(getattr(hook, name), *args)

    async def _guard(self, method: Callable[..., Any], *args: Any) -> Any:
        try:
            answer = method(self._run, *args)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            logger.exception("A hook failed in run %s of session %s.", self._run.run_id, self._run.session_id)
            return None
