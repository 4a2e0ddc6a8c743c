"""The life of an app: open the executor, recover lost runs, end streams on shutdown, under any ASGI server.

A server runs the app's lifespan. An app that is mounted in another one gets no lifespan: it starts with its first
request, and a stop signal ends it. Everything lives in one task, so that what was opened is closed by the same task.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from types import FrameType

from ..errors import InvalidArgument, StoreUnavailable
from ..executor import AgentExecutor, WorkerPool
from ..safe_text import get_logger
from .context import ServerContext

logger = get_logger("helix_agents.server")

RECOVER_AT_ONCE = 100
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Opened = AgentExecutor | AbstractAsyncContextManager[AgentExecutor] | Awaitable[AgentExecutor]
Factory = Callable[[], Opened] | AbstractAsyncContextManager[AgentExecutor]
"""What opens an executor: an async context manager, or a function that returns one, or that returns an executor."""


class ServerLifespan:
    """Starts and stops what an app needs."""

    def __init__(self, executor_or_factory: AgentExecutor | Factory, context: ServerContext, *, recover: bool) -> None:
        self._factory = None if isinstance(executor_or_factory, AgentExecutor) else executor_or_factory
        self._executor: AgentExecutor | None = None
        self._recover = recover
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._stopping: asyncio.Event | None = None
        if isinstance(executor_or_factory, AgentExecutor):
            self._use(executor_or_factory)
        elif not callable(executor_or_factory) and not isinstance(executor_or_factory, AbstractAsyncContextManager):
            raise not_an_executor(executor_or_factory)

    @property
    def executor(self) -> AgentExecutor:
        """The executor, once it is open."""
        if self._executor is None:
            raise StoreUnavailable("The server is stopping.")
        return self._executor

    @asynccontextmanager
    async def context(self, app: object) -> AsyncIterator[None]:
        """The lifespan that an ASGI server runs."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    async def ensure_started(self, *, mounted: bool) -> None:
        """Start with a request, if no server has run the lifespan and something needs it."""
        if self._task is None and (mounted or self._executor is None):
            await self.start(until_signal=True)
        elif self._started is not None and not self._started.done():
            await asyncio.shield(self._started)

    async def start(self, *, until_signal: bool = False) -> None:
        """Open everything. Raises errors of the stores and the factory. `until_signal`: a stop signal closes it
        again."""
        if self._task is not None:
            raise InvalidArgument("This app is running already: create another one.")
        self._started = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._live(self._started, self._stopping, until_signal), name="helix-server")
        await asyncio.shield(self._started)

    async def stop(self) -> None:
        """End the streams, hand runs over and close what was opened."""
        self._context.occupancy.stop_streams()
        task, self._task = self._task, None
        if task is not None and self._stopping is not None:
            self._stopping.set()
            await task

    async def _live(self, started: asyncio.Future[None], stopping: asyncio.Event, until_signal: bool) -> None:
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            self._context.occupancy.stop_streams()
            if until_signal:
                stopping.set()

        try:
            async with AsyncExitStack() as stack:
                if self._factory is not None:
                    self._use(await _open(self._factory, stack))
                if self._recover:
                    await stack.enter_async_context(WorkerPool(self.executor, at_once=RECOVER_AT_ONCE))
                stack.enter_context(_signals(lambda: loop.call_soon_threadsafe(on_signal)))
                started.set_result(None)
                await stopping.wait()
        except Exception as error:
            if started.done():
                raise
            self._task = None
            started.set_exception(error)
        finally:
            if self._factory is not None:
                self._executor = None

    def _use(self, executor: AgentExecutor) -> None:
        self._executor = executor
        self._context.register_agents(executor)
        self._context.count_runs(executor)


async def _open(factory: Factory, stack: AsyncExitStack) -> AgentExecutor:
    made = factory if isinstance(factory, AbstractAsyncContextManager) else factory()
    if inspect.isawaitable(made):
        made = await made
    if isinstance(made, AbstractAsyncContextManager):
        made = await stack.enter_async_context(made)
    if not isinstance(made, AgentExecutor):
        raise not_an_executor(made)
    return made


def not_an_executor(given: object) -> InvalidArgument:
    """Return the error for an object that is neither an executor nor opens one."""
    return InvalidArgument(
        f"create_app() needs an AgentExecutor, or a function or async context manager that returns one, "
        f"not {type(given).__name__}."
    )


@contextmanager
def _signals(notify: Callable[[], object]) -> Iterator[None]:
    """Call `notify` at a stop signal, before the handler of the server runs.

    A server waits for open connections before it runs the shutdown of the lifespan, so streams must end earlier.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        notify()
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    hooked = [number for number, handler in before.items() if callable(handler)]
    for number in hooked:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in hooked:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])
