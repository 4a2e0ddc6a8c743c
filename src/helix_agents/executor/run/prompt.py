"""HistoryView: lets the agent's history choose what the model sees, validates it, and stores its summaries."""

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
from ..step.undo import ModelReading
from .budget import token_entry


class HistoryError(HelixError):
    """The agent's history raised, or returned messages that cannot be sent to a model."""


class HistoryView:
    """The conversation of one run as its model sees it."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._new_summary: list[Message] = []
        self._reading = ModelReading()
        self._read = 0
        """How many stored messages have been read."""
        self._last: Message | None = None
        self._visible: list[Message] = []
        """The messages that the model may see."""
        self._summary: Message | None = None
        self.window: list[int] | None = None
        """The range of stored messages chosen last, as `[first, end]`, without summaries; None if others were
        chosen."""

    async def choose(self, number: int) -> list[Message]:
        """Return the messages of the request for step `number`. Raises `HistoryError`."""
        visible, summary = self._choices(number)
        history = self._context.agent.history
        self.window = [0, len(visible)]
        if history is None:
            return visible
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
            chosen = history(tuple(visible), context)
            messages = list(await chosen if inspect.isawaitable(chosen) else chosen)
            stored = {id(message) for message in visible}
            for message in messages:
                if id(message) not in stored:
                    ensure_sayable(message)
        except (RunLost, StoreError):
            raise
        except Exception as error:
            raise HistoryError(f"The agent's history failed: {type(error).__name__}: {error}") from error
        if not messages:
            raise HistoryError("The agent's history returned no messages, so there is nothing to send to the model.")
        broken = broken_pair(messages)
        if broken is not None and broken_pair(visible) is None:
            raise HistoryError(
                f"The agent's history breaks the conversation: {broken}. Keep both of a pair or neither."
            )
        self.window = _window(messages, visible)
        return messages

    def to_commit(self) -> list[Message]:
        """Return the summary made for this step, to be committed with it."""
        made, self._new_summary = self._new_summary, []
        return made

    def _choices(self, number: int) -> tuple[list[Message], Summary | None]:
        """Return the conversation without its summaries, and the latest summary."""
        self._catch_up()
        if not self._new_summary and number == self._context.claim.session.step_count + 1:
            # A summary that was made for this step before a crash.
            self._new_summary = [row.result for row in self._context.claim.staged if row.kind == "summary"]
        latest = self._new_summary[-1] if self._new_summary else self._summary
        return self._visible.copy(), None if latest is None else Summary(latest["content"], latest["covers"])

    def _catch_up(self) -> None:
        """Read the messages stored since the last request: reading all would cost the whole conversation each step."""
        stored = self._context.owned.messages
        if self._read and (self._read > len(stored) or stored[self._read - 1] is not self._last):  # it was cut
            self._read, self._reading, self._visible, self._summary = 0, ModelReading(), [], None
        new = stored[self._read :]
        self._read, self._last = len(stored), stored[-1] if stored else None
        for message in self._reading.read(new):
            if message["role"] == SUMMARY_ROLE:
                self._summary = message
            elif message["role"] != EFFECTS_ROLE:
                self._visible.append(message)

    async def _record(self, usage: TokenUsage, number: int) -> None:
        """Record what a history spends on its own models."""
        store = self._context.services.usage
        if store is not None:
            await store.record_entries(
                [token_entry(self._context, f"history-{self._context.services.ids()}", number, usage)]
            )

    async def _keep(self, made: Summary, number: int) -> None:
        if not isinstance(made, Summary) or made.covers < 0:
            raise InvalidArgument(f"keep_summary needs a Summary, not {made!r}.")
        message: Message = {"role": SUMMARY_ROLE, "content": made.text, "covers": made.covers}
        row = StagedChanges("", 0, StepWrites(), message, kind="summary")
        await self._context.watch.ensure_owner()
        await self._context.owned.stage(step_id(self._context.run_id, number), [row])
        self._new_summary = [message]


def _window(chosen: Sequence[Message], visible: Sequence[Message]) -> list[int] | None:
    """Return the range of stored messages chosen, after at most one summary; None if others were chosen."""
    for summaries in (0, 1):
        first = len(visible) - (len(chosen) - summaries)
        if 0 <= first < len(visible) and all(map(operator.is_, chosen[summaries:], visible[first:])):
            return [first, len(visible)]
    return None
