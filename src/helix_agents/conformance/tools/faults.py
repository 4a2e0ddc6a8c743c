"""Faults at the n-th call of a backend verb: fail before, fail after, cancel, die.

The store under test is built on `StateStoreBase`, whose `VERBS` names the async methods through which all storage goes.
A `Plan` wraps them on one store object. Errors that a verb raises by itself (e.g. a failed guard) pass through.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Literal

from ...errors import StoreUnavailable
from ...stores.state.contract import StateStore
from ..registry import NotApplicable

Fault = Literal[
    "none",
    "fail_before",
    "fail_after",
    "cancel_before",
    "cancel_during",
    "exit_before",
    "kill_before",
    "kill_after",
]
IN_PROCESS: tuple[Fault, ...] = ("fail_before", "fail_after", "cancel_before", "cancel_during")
DEADLY: tuple[Fault, ...] = ("exit_before", "kill_before", "kill_after")

_inside_a_verb: ContextVar[bool] = ContextVar("inside_a_verb", default=False)

Verb = Callable[..., Awaitable[Any]]


def verbs_of(store: StateStore) -> tuple[str, ...]:
    """Return the names of the store's verbs; raise `NotApplicable` for a store without verbs."""
    verbs: tuple[str, ...] = getattr(store, "VERBS", ())
    if not verbs:
        raise NotApplicable("the store names no VERBS, so there is nowhere to put a fault")
    return verbs


class Plan:
    """A fault at the `at`-th verb call (from 1) and at the `times - 1` calls after it.

    `calls` counts all calls, `struck` is true once a fault has happened.
    """

    def __init__(self, fault: Fault = "none", at: int = 0, *, times: int = 1) -> None:
        self.fault = fault
        self.at = at
        self.times = times
        self.calls = 0
        self.struck = False

    def attach(self, store: StateStore) -> None:
        """Wrap the verbs of this one store object."""
        for name in verbs_of(store):
            setattr(store, name, self._wrapped(getattr(store, name)))

    def _wrapped(self, verb: Verb) -> Verb:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if _inside_a_verb.get():
                return await verb(*args, **kwargs)  # A verb that calls another one still counts as one.
            token = _inside_a_verb.set(True)
            try:
                self.calls += 1
                if not self.at <= self.calls < self.at + self.times:
                    return await verb(*args, **kwargs)
                self.struck = True
                return await self._strike(verb, args, kwargs)
            finally:
                _inside_a_verb.reset(token)

        return call

    async def _strike(self, verb: Verb, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        match self.fault:
            case "fail_before":
                raise StoreUnavailable("The kit's fault: this call never reached the backend.")
            case "cancel_before":
                task.cancel()
                await asyncio.sleep(0)
            case "cancel_during":
                asyncio.get_running_loop().call_soon(task.cancel)
            case "exit_before":
                os._exit(1)
            case "kill_before":
                os.kill(os.getpid(), signal.SIGKILL)
        answer = await verb(*args, **kwargs)
        if self.fault == "fail_after":
            raise StoreUnavailable("The kit's fault: the backend did it, but the reply was lost.")
        if self.fault == "kill_after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
