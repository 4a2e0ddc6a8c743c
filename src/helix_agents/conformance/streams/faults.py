"""Faults at the verbs of a stream manager: either the call or its reply is lost.

A manager built on `StreamManagerBase` names its verbs in `VERBS`; any other raises `NotApplicable`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from ...errors import StoreUnavailable
from ...streams.contract import StreamManager
from ..registry import NotApplicable

StreamFault = Literal["none", "before", "after"]
Verb = Callable[..., Awaitable[Any]]
Wrapper = Callable[[Verb], Verb]


def wrap(manager: StreamManager, verb: str, wrapper: Wrapper) -> None:
    """Put `wrapper` around one verb of one manager object."""
    if verb not in getattr(manager, "VERBS", ()):
        raise NotApplicable("the manager names no VERBS, so there is nowhere to put a fault")
    setattr(manager, verb, wrapper(getattr(manager, verb)))


def faulty(choose: Callable[[int], StreamFault]) -> Wrapper:
    """Return a wrapper that asks for every call (numbered from 1) what should happen to it."""
    calls = 0

    def wrapper(verb: Verb) -> Verb:
        async def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            fault = choose(calls)
            if fault == "before":
                raise StoreUnavailable("The kit's fault: this call never reached the backend.")
            answer = await verb(*args, **kwargs)
            if fault == "after":
                raise StoreUnavailable("The kit's fault: the backend did it, but the reply was lost.")
            return answer

        return call

    return wrapper


def counting(calls: list[int]) -> Wrapper:
    """Return a wrapper that records how many chunks each append contained."""

    def wrapper(verb: Verb) -> Verb:
        async def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(len(kwargs.get("chunks", ())))
            return await verb(*args, **kwargs)

        return call

    return wrapper
