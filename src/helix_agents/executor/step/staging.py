"""Stager: makes the outcomes of an open step durable. Rows that are ready together share one write.

Knows rows, not tools: callers use `may_run_again` to decide whether a row may wait for the commit.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ...agent import AgentTool
from ...chunks import AnyChunk
from ...errors import HelixError, InvalidArgument, SchemaTooNew, StoreCorrupt, StoreError, StoreUnavailable
from ...tools.tool import Tool
from ...types import StagedChanges
from ..run_context import RunContext
from ..services import Durability
from .decisions import Outcome
from .open_step import OpenStep

UNSTORABLE: tuple[type[HelixError], ...] = (InvalidArgument, StoreError)
"""Errors of a store that cannot store a value; `is_transient` excludes the others."""


def is_transient(error: HelixError) -> bool:
    """Return whether an error is about the store's availability, not about the value."""
    return isinstance(error, StoreUnavailable | StoreCorrupt | SchemaTooNew)


def not_storable(error: Exception, effect_key: str | None = None) -> Outcome:
    """Return the outcome of a call whose result or writes cannot be stored. Its effect, if any, remains recorded."""
    if effect_key is not None:
        why = f"The call took effect, but what the tool wrote or returned cannot be stored: {error}"
    else:
        why = f"What the tool wrote or returned cannot be stored, so it was discarded: {error}"
    return Outcome(success=False, error=why, effect_key=effect_key)


def may_run_again(tool: Tool, durability: Durability) -> bool:
    """Return whether a call may wait for the commit of its step. Sub-agents, questions and effects may not."""
    if isinstance(tool, AgentTool) or tool.asks_outside or tool.happens_once:
        return False
    return tool.idempotent or durability == "step"


class _Waiting(NamedTuple):
    """A row to be written, the chunk that announces it, and the caller's future; both None for a row from
    `unstaged`."""

    row: StagedChanges
    announcement: AnyChunk | None = None
    done: asyncio.Future[None] | None = None

    def settle(self, error: Exception | None = None) -> None:
        """Resolve the caller's future, with or without an error."""
        if self.done is None or self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
            self.done.exception()  # retrieve it, in case the caller was canceled


class Stager:
    """Stages rows of one run in batches."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def stage(self, step: OpenStep, row: StagedChanges, announcement: AnyChunk | None = None) -> None:
        """Make a row durable, batched with other ready rows, and emit its chunk. Raises the store's error for it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(row, announcement, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(step), name="helix-stage")
        await asyncio.shield(done)

    async def settle(self) -> None:
        """Wait until no write is in flight: a row stored after its step was committed would never be removed."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write_all(self, step: OpenStep) -> None:
        batch: list[_Waiting] = []
        try:
            await asyncio.sleep(0)  # collect rows from the same iteration of the event loop
            while self._waiting:
                batch, self._waiting = self._waiting, []
                if self._completes(step, batch):
                    self._leave_to_commit(step, batch)
                else:
                    await self._write(step, batch)
        finally:
            self._writing = None
            for each in [*batch, *self._waiting]:
                if each.done is not None:
                    each.done.cancel()

    def _completes(self, step: OpenStep, batch: list[_Waiting]) -> bool:
        """Return whether these are the last outcomes of the step, so that its commit follows immediately."""
        if not self._context.stream.carries or self._waiting or self._context.agent.output_guards:
            return False
        last = {each.row.tool_call_id for each in batch if each.row.kind == "call"}
        return len(last) == len(batch) and all(call["id"] in last for call in step.missing)

    def _leave_to_commit(self, step: OpenStep, batch: list[_Waiting]) -> None:
        """Leave outcomes to the commit, which follows immediately; until then no reader sees them."""
        for each in batch:
            step.unstaged[each.row.tool_call_id] = each.row
            if each.announcement is not None:
                step.to_emit[each.row.tool_call_id] = each.announcement
            each.settle()

    async def _write(self, step: OpenStep, batch: list[_Waiting]) -> None:
        everything = [*map(_Waiting, step.unstaged.values()), *batch]
        try:
            await self._stage(step, everything)
        except UNSTORABLE as error:
            if is_transient(error) or len(everything) == 1:
                _fail(batch, error)
                return
            # One of the rows cannot be stored: find it, and store the others.
            for each in everything:
                try:
                    await self._stage(step, [each])
                except Exception as refused:
                    each.settle(refused)  # a row without a waiting caller stays unstaged, and the commit reports it
        except Exception as error:
            _fail(batch, error)

    async def _stage(self, step: OpenStep, batch: list[_Waiting]) -> None:
        to_emit = [each.announcement for each in batch if each.announcement is not None]
        async with self._context.stream.carrying(*to_emit) as load:
            load.sequence = await self._context.owned.stage(
                step.step_id, [each.row for each in batch], along=load.along
            )
        for each in batch:
            if each.done is None:
                step.unstaged.pop(each.row.tool_call_id, None)
            each.settle()


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for each in batch:
        each.settle(error)


async def flush_unstaged(context: RunContext, step: OpenStep) -> None:
    """Stage rows that wait for the commit, because the step is not committed now."""
    rows = list(step.unstaged.values())
    async with context.stream.carrying(*step.to_emit.values()) as load:
        load.sequence = await context.owned.stage(step.step_id, rows, along=load.along)
    step.unstaged.clear()
    step.to_emit.clear()
