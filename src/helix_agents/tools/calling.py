"""Call a tool's function so that it can end, cancel and block only itself."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class ToolEscape(Exception):
    """A tool raised something that is not an ordinary exception: `SystemExit`, or a cancellation that no caller
    requested."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"{type(raised).__name__}: {raised}".removesuffix(": "))


class CallSuspended(BaseException):
    """Ends the function of a call that cannot continue without a response from outside.

    Not an `Exception`, so that a tool's own `except Exception` lets it through.
    """


async def contained(answer: Awaitable[T]) -> T:
    """Await a tool's work in a separate task, so that it can end or cancel only itself.

    Cancelling the caller cancels the task; a cancellation that comes out of the tool is a `ToolEscape`.
    """

    async def work() -> tuple[T | None, BaseException | None]:
        try:
            return await answer, None
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except (Exception, CallSuspended) as raised:
            return None, raised
        except BaseException as raised:  # here, because the loop lets SystemExit through to the whole process
            return None, ToolEscape(raised)

    try:
        result, error = await asyncio.create_task(work(), name="helix-tool")
    except asyncio.CancelledError as raised:
        caller = asyncio.current_task()
        if caller is not None and caller.cancelling():
            raise
        raise ToolEscape(raised) from raised
    finally:
        if inspect.iscoroutine(answer):
            answer.close()  # one that was cancelled before it began has never been awaited
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # a result unless there is an error


def in_thread(function: Callable[[], T]) -> Awaitable[T]:
    """Run a blocking function in its own daemon thread.

    Not the loop's pool: a tool that never returns must neither fill a pool nor keep the process from exiting.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # a result unless there is an error

    def work() -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = context.run(function)
        except StopIteration as stop:
            error = RuntimeError(f"the tool raised StopIteration({stop.value!r})")
        except Exception as raised:
            error = raised
        except BaseException as raised:
            error = ToolEscape(raised)
        with suppress(RuntimeError):  # if the loop is closed, nothing waits anymore
            loop.call_soon_threadsafe(settle, result, error)

    if sys.platform == "emscripten":
        work()  # a Worker has no threads: the loop waits for the tool
    else:
        threading.Thread(target=work, name="helix-tool", daemon=True).start()
    return done
