"""Stager: makes the outcomes of an open step durable. Those that are ready together leave in one write.

Knows rows, not tools: when a row may wait for the commit is asked of `may_run_again` by the rooms that make rows.
"""

from __future__ import annotations

import asyncio

from ...agent import AgentTool
from ...errors import HelixError, InvalidArgument, SchemaTooNew, StoreCorrupt, StoreError, StoreUnavailable
from ...tools.tool import Tool
from ...types import StagedChanges
from ..run_context import RunContext
from ..services import Durability
from .open_step import OpenStep

UNSTORABLE: tuple[type[HelixError], ...] = (InvalidArgument, StoreError)
"""What a store raises for a value that it cannot hold; `is_passing` tells the others apart."""


def is_passing(error: HelixError) -> bool:
    """Whether an error says something about the store's health and nothing about what was to be written."""
    return isinstance(error, StoreUnavailable | StoreCorrupt | SchemaTooNew)


def not_storable(error: Exception) -> str:
    """What the model is told of a call whose outcome or writes the store refuses."""
    return f"What the tool wrote or returned cannot be stored, so nothing of it counts: {error}"


def may_run_again(tool: Tool, durability: Durability) -> bool:
    """Whether a call need not be durable before its step commits. Sub-agents and questions always are."""
    if isinstance(tool, AgentTool) or tool.asks_outside:
        return False
    return tool.idempotent or durability == "step"


class Stager:
    """Stages rows of one run."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._waiting: list[tuple[StagedChanges, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def stage(self, step: OpenStep, row: StagedChanges) -> None:
        """Make a row durable, with whatever else is ready. Raises what the store raises for this row."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(step), name="helix-stage")
        await asyncio.shield(done)

    async def settle(self) -> None:
        """Wait until nothing is on its way: a row that lands after its step was committed would stay for ever."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write_all(self, step: OpenStep) -> None:
        try:
            await asyncio.sleep(0)  # what ends in the same turn of the loop leaves together
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write(step, batch)
        finally:
            self._writing = None
            for _, done in self._waiting:
                done.cancel()

    async def _write(self, step: OpenStep, batch: list[tuple[StagedChanges, asyncio.Future[None]]]) -> None:
        along = list(step.unstaged.values())
        try:
            await self._context.owned.stage(step.step_id, [*along, *(row for row, _ in batch)])
        except UNSTORABLE as error:
            if is_passing(error) or len(batch) + len(along) == 1:
                _fail(batch, error)
                return
            # One of them cannot be stored: find out which, the others must not suffer.
            for row in along:
                await self._write_one(step, row, None)
            for row, done in batch:
                await self._write_one(step, row, done)
            return
        except Exception as error:
            _fail(batch, error)
            return
        except BaseException:
            for _, done in batch:
                done.cancel()
            raise
        for row in along:
            step.unstaged.pop(row.tool_call_id, None)
        for _, done in batch:
            if not done.done():
                done.set_result(None)

    async def _write_one(self, step: OpenStep, row: StagedChanges, done: asyncio.Future[None] | None) -> None:
        try:
            await self._context.owned.stage(step.step_id, [row])
        except Exception as error:
            if done is not None:  # else it stays unstaged, and the commit finds out
                _fail([(row, done)], error)
            return
        if done is None:
            step.unstaged.pop(row.tool_call_id, None)
        elif not done.done():
            done.set_result(None)


def _fail(batch: list[tuple[StagedChanges, asyncio.Future[None]]], error: Exception) -> None:
    for _, done in batch:
        if not done.done():
            done.set_exception(error)
            done.exception()  # a caller that was cancelled does not fetch it


async def flush_unstaged(context: RunContext, step: OpenStep) -> None:
    """Stage what waits for the commit, because there will be none for now."""
    rows = list(step.unstaged.values())
    await context.owned.stage(step.step_id, rows)
    step.unstaged.clear()
