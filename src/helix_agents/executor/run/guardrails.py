"""Guards: an agent's own checks of input and output. Any exception they raise is a rejection, not a crash."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ...agent import Guard
from ...errors import RunLost, StoreError
from ...failures import OUTPUT_REFUSED
from ...messages import EFFECTS_ROLE, Message, automatic_message
from ...tools.tool import ModelRetry
from ..step.decisions import StepCommit


async def refusal_of(guards: Sequence[Guard], value: Any) -> Exception | None:
    """Return the error of the first guard that rejects the value; None if none does."""
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
    """Return the user's messages since the last reply."""
    found: list[Message] = []
    for message in reversed(messages):
        if message["role"] == EFFECTS_ROLE:
            continue
        if message["role"] != "user":
            break
        found.insert(0, message)
    return found


def refused_output(commit: StepCommit, refusal: Exception, *, steps_left: int) -> StepCommit:
    """Return the commit of a rejected output: it gives the model the reason, or ends the run."""
    if isinstance(refusal, ModelRetry) and steps_left > 0:
        return StepCommit([*commit.messages, automatic_message(str(refusal))], "active")
    error = f"The output was refused: {refusal}"
    return StepCommit(commit.messages, "failed", error=error, failure_reason=OUTPUT_REFUSED)
