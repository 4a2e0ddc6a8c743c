"""Elicitation: what a server asks in the middle of a call becomes a question of that tool call.

The question is durable and any process may answer it (`ToolContext.ask`). The call to the server is given up meanwhile
and made again after the answer, which the server then gets as soon as it asks. Servers of the protocol from 2026-07-28
on ask within the reply to a call; older ones send a request, which does not say which call it belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from mcp import types

from ..codec import Json
from ..errors import HelixError
from ..tools import ToolContext

T = TypeVar("T")

_INVALID_REQUEST = -32600
_ACTIONS = ("accept", "decline", "cancel")


class Asking:
    """The calls in progress over one connection, and the server's questions during them."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    async def during(self, context: ToolContext, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call. If the server asks a question without an answer yet, stop the call and raise `CallSuspended`."""
        mine = _Call(context)
        self._calls.append(mine)
        token = _CURRENT.set(mine)
        job = asyncio.ensure_future(call())
        try:
            await asyncio.wait({job, mine.stopped}, return_when=asyncio.FIRST_COMPLETED)
            return job.result() if job.done() else mine.stopped.result()
        finally:
            _CURRENT.reset(token)
            self._calls.remove(mine)
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            mine.stopped.cancel()
            if mine.stopped.done() and not mine.stopped.cancelled():
                mine.stopped.exception()  # retrieved, also if the call ended at the same time

    async def elicited(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Answer a question of the server, or stop the call that it belongs to."""
        mine = _CURRENT.get()
        if mine is None and len(self._calls) == 1:
            (mine,) = self._calls
        if mine is None or mine not in self._calls:
            return _error("Several calls are in progress: it is not known which of them asks. Make one at a time.")
        return await mine.answer(params)


class _Call:
    """A call in progress."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._turn = asyncio.Lock()
        self.stopped: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Fails with what ends the call: `CallSuspended`, or an error of the store."""

    async def answer(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Return the answer, if it is known. Questions of one call are asked one after the other."""
        async with self._turn:
            if not self.stopped.done():
                try:
                    question = question_of(params)
                    return result_of(question, await self._context.ask(question))
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # `CallSuspended` is not an Exception
                    if not self.stopped.done():
                        self.stopped.set_exception(error)
        return _error("The question is asked later.")


_CURRENT: ContextVar[_Call | None] = ContextVar("helix_mcp_call", default=None)
"""The call in whose task the client library runs, if it is known."""


def question_of(params: types.ElicitRequestParams) -> dict[str, Json]:
    """Return a server's question in the form that is stored and shown."""
    if isinstance(params, types.ElicitRequestURLParams):
        return {"message": params.message, "url": params.url}
    return {"message": params.message, "schema": dict(params.requested_schema)}


def result_of(question: dict[str, Json], answer: Json) -> types.ElicitResult:
    """Return the answer in the form that the server expects: an action with its content, the content alone, or its only
    field.

    Raises `HelixError` for an answer of another shape.
    """
    match answer:
        case {"action": str(action), **rest} if action in _ACTIONS and rest.keys() <= {"content"}:
            return types.ElicitResult(action=action, content=rest.get("content"))  # type: ignore[arg-type]
        case dict():
            return types.ElicitResult(action="accept", content=answer)
    if "url" in question:
        return types.ElicitResult(action="decline" if answer is False else "accept")
    fields = list((question["schema"] or {}).get("properties", {}))
    if len(fields) != 1:
        raise HelixError(f"The answer to {question['message']!r} must be an object with the fields {fields}.")
    return types.ElicitResult(action="accept", content={fields[0]: answer})


def _error(message: str) -> types.ErrorData:
    return types.ErrorData(code=_INVALID_REQUEST, message=message)
