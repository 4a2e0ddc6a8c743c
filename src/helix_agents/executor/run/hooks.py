"""Hooks: watch runs, steps, model calls and tools, before and after. Observation only; an error in one is logged.

Derive from `Hooks`, override what you want to see, and give it to the executor. `tracing.py` is an example.
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
"""The `error` of a model call that was cut off because the run was asked to stop."""


class RunInfo(msgspec.Struct, frozen=True):
    """Which run something happens in. `tracing_context` is what an earlier run of the session left.

    `parent_run_id` and `parent_tool_call_id` name the call that a sub-agent's run works for.

    `model` and `provider` are those of the adapter that is asked, if it has attributes of these names.
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
    """What is known of a model's answer besides its contents. `model` is the name that the provider gave."""

    requested_model: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    usage: TokenUsage | None = None


class Hooks:
    """What may be watched; every method may be left as it is."""

    async def run_started(self, run: RunInfo) -> TracingContext | None:
        """A run begins or goes on. What is answered is stored, and given to the hooks of whoever resumes."""
        return None

    async def run_ended(self, run: RunInfo, status: str, error: str | None) -> None:
        """The run ended or was suspended, with the session's status; "lost" if another process took over."""

    async def step_started(self, run: RunInfo, step: int) -> None:
        """A step begins, or an open one is taken up again."""

    async def step_ended(self, run: RunInfo, step: int, status: str) -> None:
        """A step was committed or put aside; `status` is the session's."""

    async def writes_lost(self, run: RunInfo, step: int, warnings: Sequence[str]) -> None:
        """A step was committed in which parallel tools overwrote each other's writes; a sentence for each."""

    async def model_started(self, run: RunInfo, step: int, attempt: int) -> None:
        """The model is about to be asked."""

    async def model_answered(self, run: RunInfo, step: int, answer: ModelAnswer) -> None:
        """The model gave a whole answer: which one, why it stopped, what it cost. `model_ended` follows."""

    async def model_ended(self, run: RunInfo, step: int, message: Message | None, error: str | None) -> None:
        """The model answered, or did not; `error` is `"interrupted"` if it was cut off because the run was stopped.

        `message` has a `finish_reason` if the model gave one.
        """

    async def tool_started(self, run: RunInfo, step: int, call: dict[str, Any]) -> None:
        """A tool call (`id`, `name`, `arguments`) begins."""

    async def tool_ended(self, run: RunInfo, step: int, call: dict[str, Any], outcome: Outcome) -> None:
        """A tool call has its outcome. The last outcomes of a step may become durable only with its commit."""


class HookCaller:
    """Calls all hooks for one run; none of them can break it."""

    def __init__(self, hooks: Sequence[Hooks], run: RunInfo) -> None:
        self._hooks = hooks
        self._run = run

    async def start(self) -> TracingContext | None:
        """Tell all that the run began; the tracing context that one of them gave."""
        given: TracingContext | None = None
        for hook in self._hooks:
            answer = await self._guard(hook.run_started)
            given = answer if isinstance(answer, TracingContext) else given
        return given

    async def call(self, name: str, *args: Any) -> None:
        """Tell all hooks of `name`."""
        for hook in self._hooks:
            await self._guard(getattr(hook, name), *args)

    async def _guard(self, method: Callable[..., Any], *args: Any) -> Any:
        try:
            answer = method(self._run, *args)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception:
            logger.exception("A hook failed in run %s of session %s.", self._run.run_id, self._run.session_id)
            return None
