"""Guards: an agent's own checks of what goes in and what comes out. Whatever they raise is an answer, never a crash."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ...agent import Guard
from ...errors import RunLost, StoreError
from ...messages import EFFECTS_ROLE, Message, automatic_message
from ...tools.tool import ModelRetry
from ..step.decisions import StepCommit

INPUT_REFUSED = "input_refused"
"""Why a run failed whose input a check refused."""


async def refusal_of(guards: Sequence[Guard], value: Any) -> Exception | None:
    """What the first guard that refuses raises."""
    for guard in guards:
        try:
            verdict = guard(value)
            if inspect.isawaitable(verdict):
                await verdict
        except (RunLost, StoreError):
            raise
        except Exception as error:
            return error
    return None


def new_input(messages: Sequence[Message]) -> list[Message]:
    """What the user said since the last answer."""
    said: list[Message] = []
    for message in reversed(messages):
        if message["role"] == EFFECTS_ROLE:
            continue
        if message["role"] != "user":
            break
        said.insert(0, message)
    return said


def refused_output(commit: StepCommit, refusal: Exception, *, steps_left: int) -> StepCommit:
    """The commit of an output that must not pass: the model hears why, or the run ends."""
    if isinstance(refusal, ModelRetry) and steps_left > 0:
        return StepCommit([*commit.messages, automatic_message(str(refusal))], "active")
    error = f"The output was refused: {refusal}"
    return StepCommit(commit.messages, "failed", error=error, failure_reason="output_refused")
