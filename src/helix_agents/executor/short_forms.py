"""Short forms of `execute`: wait for the result, iterate over the chunks, do so where no event loop runs."""

from __future__ import annotations

import asyncio
import atexit
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack

from ..agent import Agent, Output
from ..chunks import Chunk
from ..codec import Json
from ..errors import InvalidArgument
from ..limits import UsageLimits
from .handle import AgentResult, RunHandle
from .options import Input
from .step.queued_messages import IfExists, IfRunning
from .stream.follow import RunChunks


class ExecuteOptions(TypedDict, total=False):
    """What `execute` takes by name."""

    session_id: str | None
    user_id: str | None
    tags: Sequence[str]
    metadata: Mapping[str, str] | None
    expires_at: int | None
    custom_state: Mapping[str, Json] | object | None
    limits: UsageLimits | None
    deps: Any
    if_exists: IfExists
    if_running: IfRunning
    idempotency_key: str | None


class ShortForms(ABC):
    """What can be said in one call, given `execute`."""

    @abstractmethod
    async def execute(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> RunHandle[Output]: ...

    async def run(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> AgentResult[Output]:
        """Execute, and wait until the run ends or suspends. Takes what `execute` takes."""
        return await (await self.execute(agent, input, **options)).result()

    def run_sync(
        self, agent: Agent[Output] | str, input: Input, **options: Unpack[ExecuteOptions]
    ) -> AgentResult[Output]:
        """`run` where no event loop runs. All calls of a thread share one loop, so stores may be used again."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _runner().run(self.run(agent, input, **options))
        raise InvalidArgument("run_sync() was called where an event loop runs: write `await executor.run(...)`.")

    def stream(self, agent: Agent | str, input: Input, **options: Unpack[ExecuteOptions]) -> ExecutedChunks:
        """Execute with the first `anext`, and iterate over the chunks of the run. Takes what `execute` takes."""
        return ExecutedChunks(lambda: self.execute(agent, input, **options))


class ExecutedChunks(AsyncIterator[Chunk]):
    """The chunks of a run that begins when they are asked for. Whoever stops reading does not stop the run."""

    def __init__(self, execute: Callable[[], Awaitable[RunHandle]]) -> None:
        self._execute = execute
        self._starting: asyncio.Future[RunHandle] | None = None
        self._chunks: RunChunks[Chunk] | None = None

    @property
    def handle(self) -> RunHandle:
        """The run, once the first chunk was asked for."""
        if self._starting is None or not self._starting.done():
            raise InvalidArgument("The run has not begun: ask for a chunk first.")
        return self._starting.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._chunks is None:
            if self._starting is None:
                self._starting = asyncio.ensure_future(self._execute())
            self._chunks = (await asyncio.shield(self._starting)).stream()
        return await anext(self._chunks)

    async def aclose(self) -> None:
        """Stop reading; the run goes on."""
        if self._chunks is not None:
            await self._chunks.aclose()


_runners = threading.local()


def _runner() -> asyncio.Runner:
    """The loop of this thread. Stores cling to the loop in which they were used first, so it stays."""
    runner: asyncio.Runner | None = getattr(_runners, "runner", None)
    if runner is None:
        runner = _runners.runner = asyncio.Runner()
        if threading.current_thread() is threading.main_thread():
            atexit.register(runner.close)
    return runner
