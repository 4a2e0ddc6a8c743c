"""HistoryView: lets the agent's history choose what the model sees, checks it, and stores the summaries that it
makes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence

from ...errors import HelixError, InvalidArgument, RunLost, StoreError
from ...history import SUMMARY_ROLE, HistoryContext, Summary, broken_pair
from ...ids import step_id
from ...llm.contract import TokenUsage
from ...messages import EFFECTS_ROLE, Message, ensure_sayable
from ...state import StepWrites
from ...types import StagedChanges
from ..run_context import RunContext
from ..step.undo import as_the_model_reads
from .budget import token_entry


class HistoryError(HelixError):
    """The agent's history raised, or returned messages that cannot be sent to a model."""


class HistoryView:
    """The conversation of one run as its model sees it."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._new: list[Message] = []
        self.window: list[int] | None = None
        """The stored messages that were chosen last, as `[first, end]`, summaries not counted; None if others were."""

    async def choose(self, number: int) -> list[Message]:
        """Return the messages of the request for step `number`. Raises `HistoryError`."""
        said, summary = self._read(number)
        history = self._context.agent.history
        self.window = [0, len(said)]
        if history is None:
            return said
        session = self._context.owned.session

        async def keep(made: Summary) -> None:
            await self._keep(made, number)

        context = HistoryContext(
            session_id=session.session_id,
            run_id=self._context.run_id,
            agent_type=self._context.agent.name,
            step=number,
            state=self._context.owned.state,
            summary=summary,
            keep_summary=keep,
            record_usage=lambda usage: self._record(usage, number),
        )
        try:
            chosen = history(tuple(said), context)
            messages = list(await chosen if inspect.isawaitable(chosen) else chosen)
            stored = {id(message) for message in said}
            for message in messages:
                if id(message) not in stored:
                    ensure_sayable(message)
        except (RunLost, StoreError):
            raise
        except Exception as error:
            raise HistoryError(f"The agent's history failed: {type(error).__name__}: {error}") from error
        if not messages:
            raise HistoryError("The agent's history chose no messages: there is nothing to ask the model.")
        broken = broken_pair(messages)
        if broken is not None and broken_pair(said) is None:
            raise HistoryError(f"The agent's history breaks the conversation: {broken}. Keep both or none of a pair.")
        self.window = _window(messages, said)
        return messages

    def to_commit(self) -> list[Message]:
        """Return the summary that was made for this step, to be committed with it."""
        made, self._new = self._new, []
        return made

    def _read(self, number: int) -> tuple[list[Message], Summary | None]:
        """Return the conversation without its summaries, and the latest summary."""
        stored = self._context.owned.messages
        said = [
            message for message in as_the_model_reads(stored) if message["role"] not in (SUMMARY_ROLE, EFFECTS_ROLE)
        ]
        if not self._new and number == self._context.claim.session.step_count + 1:
            # One that was made before a crash, for this step.
            self._new = [row.result for row in self._context.claim.staged if row.kind == "summary"]
        kept: Sequence[Message] = [m for m in [*stored, *self._new] if m["role"] == SUMMARY_ROLE]
        return said, Summary(kept[-1]["content"], kept[-1]["covers"]) if kept else None

    async def _record(self, usage: TokenUsage, number: int) -> None:
        """Record what a history spends on its own models."""
        store = self._context.services.usage
        if store is not None:
            await store.record_entries(
                [token_entry(self._context, f"history-{self._context.services.ids()}", number, usage)]
            )

    async def _keep(self, made: Summary, number: int) -> None:
        if not isinstance(made, Summary) or made.covers < 0:
            raise InvalidArgument(f"keep_summary takes a Summary, not {made!r}.")
        message: Message = {"role": SUMMARY_ROLE, "content": made.text, "covers": made.covers}
        row = StagedChanges("", 0, StepWrites(), message, kind="summary")
        await self._context.watch.ensure_owner()
        await self._context.owned.stage(step_id(self._context.run_id, number), [row])
        self._new = [message]


def _window(chosen: Sequence[Message], said: Sequence[Message]) -> list[int] | None:
    """Return which stored messages were chosen, at most one summary before them; None if others were made."""
    for summaries in (0, 1):
        first = len(said) - (len(chosen) - summaries)
        if 0 <= first < len(said) and all(map(operator.is_, chosen[summaries:], said[first:])):
            return [first, len(said)]
    return None
