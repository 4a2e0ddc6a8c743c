"""ToolContext: what a tool may know and do besides its arguments.

It knows neither stores nor the executor: what a tool does goes to a `ToolOutlet`, in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..codec import Json, ensure_storable
from ..errors import InvalidArgument
from ..ids import ensure_id
from ..state import Op, StateTracker, StepWrites, TypedState
from ..stores.memory.contract import MemoryStore
from ..stores.memory.scoped import ScopedMemory
from .deferred import DeferredCall
from .effects import Check

if TYPE_CHECKING:  # so that type checkers take a bare `ToolContext` for one of anything
    from typing_extensions import TypeVar as DefaultTypeVar

    Deps = DefaultTypeVar("Deps", default=Any)
    State = DefaultTypeVar("State", default=Any)
else:
    Deps = TypeVar("Deps")
    State = TypeVar("State")

MAX_AMOUNT = 10**15
"""The largest single amount of `record_usage`, as in the usage stores."""


class ToolOutlet(Protocol):
    """Receives what a tool does; called in the event loop's thread."""

    def state_changed(
        self, ops: Sequence[Op], state: Any, writes: Callable[[Collection[str] | None], StepWrites]
    ) -> None:
        """Handle an update: what it changed, the state after it, and how to get all writes of the call."""
        ...

    def emit(self, name: str, data: Json) -> None:
        """Write a `custom` chunk; see `ToolContext.emit`."""
        ...

    def record_usage(self, name: str, value: float) -> None:
        """Record a cost of the call; see `ToolContext.record_usage`."""
        ...

    async def once(self, name: str, function: Callable[[], Any], check: Check | None) -> Json:
        """Run one effect of the call, unless it happened before; see `ToolContext.once`."""
        ...

    async def defer(self, deadline_seconds: float | None) -> DeferredCall:
        """Hand the call over to an external job; see `ToolContext.defer`."""
        ...

    async def wait_until(self, when: object) -> None:
        """Suspend the call until a moment; see `ToolContext.wait_until`."""
        ...

    async def ask(self, question: Json, deadline_seconds: float | None) -> Json:
        """Suspend the call until a person answers; see `ToolContext.ask`."""
        ...

    @property
    def interrupted(self) -> bool:
        """Return whether the run was asked to stop."""
        ...


class ToolContext(Generic[Deps, State]):
    """What a tool may know and do besides its arguments. Request it by annotating a parameter with this type.

    `ToolContext[Deps]` also says what the tool expects of `deps`, and `ToolContext[Deps, State]` as what it sees the
    state (`ToolContext[None, State]` if it needs no deps). `user_id` and `metadata` are the session's.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, kinds: Any) -> Any:
            """Accept missing type arguments, which may be anything: type variables have no defaults before Python
            3.13."""
            given = kinds if isinstance(kinds, tuple) else (kinds,)
            return super().__class_getitem__((*given, Any) if len(given) == 1 else given)

    def __init__(
        self,
        tracker: StateTracker,
        outlet: ToolOutlet,
        *,
        session_id: str,
        run_id: str,
        tool_call_id: str,
        user_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        deps: Any = None,
        memory_store: MemoryStore | None = None,
        effect_key: str = "",
    ) -> None:
        self.effect_key = effect_key
        """Identifies the effect of this call, the same after every crash: pass it to the system that performs the
        effect."""
        self.returned = False
        """Whether the function has returned: a later error does not undo its effect."""
        self.session_id = session_id
        self.run_id = run_id
        self.tool_call_id = tool_call_id
        self.user_id = user_id
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))
        self._deps = deps
        self._memory_store = memory_store
        self._tracker = tracker
        self._typed: TypedState[Any] | None = None
        self._outlet = outlet
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def state(self) -> State:
        """The session's custom state as this tool sees it: committed state plus its own updates. Immutable.

        With `ToolContext[Deps, State]` an instance of `State`; a tool that changes it in place fails.
        """
        state: State = self._tracker.state if self._typed is None else self._typed.state  # type: ignore[assignment]
        return state

    @property
    def deps(self) -> Deps:
        """The value given to `execute(..., deps=...)` or to another call that started this run. Never stored."""
        if self._deps is None:
            raise InvalidArgument(
                f"No deps were given to run {self.run_id!r}: give deps=... to execute, resume or retry, or "
                "deps_factory=... to the executor."
            )
        deps: Deps = self._deps
        return deps

    @property
    def memory(self) -> ScopedMemory:
        """The memories about the session's user, across all sessions. For async tools."""
        if self._memory_store is None:
            raise InvalidArgument(
                "This executor has no memory store: use AgentExecutor(stores, ...), or give memory_store=..."
            )
        if self.user_id is None:
            raise InvalidArgument(
                f"Session {self.session_id!r} has no user to remember things about: give execute(..., user_id=...)."
            )
        return ScopedMemory(self._memory_store, self.user_id)

    def update_state(self, fn: Callable[[State], object]) -> State:
        """Change the state through a draft that behaves like ordinary dicts and lists; return the new state.

        With `ToolContext[Deps, State]` the draft is an instance of `State`. Siblings do not see it; it is merged and
        committed with the step, or dropped if this tool fails.
        """
        changed: State = self._update(self._tracker if self._typed is None else self._typed, fn)
        return changed

    def _update(self, changer: StateTracker | TypedState[Any], fn: Callable[[Any], object]) -> Any:
        with self._lock:
            self._ensure_open()
            changed = changer.update(fn)
            # Read here, under the lock: the loop must not look at a tracker that a thread is changing.
            ops, state = self._tracker.drain_ops(), self._tracker.state
        if ops:
            self._at_home(lambda: self._outlet.state_changed(ops, state, self._writes))
        return changed

    def increment(self, *path: str, by: float = 1) -> None:
        """Add to the number at `path` of the state. The increments of parallel tools add up."""
        if not path or not all(isinstance(key, str) for key in path):
            raise InvalidArgument(f"increment() takes the keys that lead to a number of the state, not {path!r}.")

        def count(draft: Any) -> None:
            for key in path[:-1]:
                draft = draft[key]
            draft.increment(path[-1], by)

        self._update(self._tracker, count)

    def see_state_as(self, schema: Any) -> None:
        """Make `state` and drafts instances of `schema` from now on; None: plain JSON."""
        self._typed = None if schema is None else TypedState(self._tracker, schema)

    def ensure_untouched(self) -> None:
        """Raise `InvalidArgument` if the tool has changed `state` in place, which would be lost."""
        if self._typed is not None:
            self._typed.ensure_untouched()

    def _writes(self, keys: Collection[str] | None) -> StepWrites:
        with self._lock:
            return self._tracker.get_step_writes(keys)

    def emit(self, name: str, data: Json = None) -> None:
        """Send a `custom` chunk to the readers of the stream."""
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"The name of a custom chunk must be a string, not {name!r}.")
        ensure_storable(data)  # here, where the tool hears of it, not when the chunk is written
        self._ensure_open()
        self._at_home(lambda: self._outlet.emit(name, data))

    def record_usage(self, name: str, value: float = 1) -> None:
        """Record an amount in the session's usage, such as pages fetched."""
        ensure_id(name, "the name of an amount")
        ensure_amount(value)  # here, where the tool hears of it, not when the step is committed
        self._ensure_open()
        self._at_home(lambda: self._outlet.record_usage(name, value))

    async def once(self, name: str, function: Callable[[], Any], *, check: Check | None = None) -> Any:
        """Run one effect among several of a call, at most once however often the call runs again; return its result.

        `function` takes nothing, is sync or async and returns JSON. The result is durable before this returns; a later
        run of the call gets it without calling `function`. If an earlier run started the effect and its outcome is
        unknown, `check(arguments, key)` decides; otherwise the run suspends and asks a person. For async tools.
        """
        ensure_id(name, "the name of an effect")
        if not callable(function) or (check is not None and not callable(check)):
            raise InvalidArgument(f"once({name!r}): function and check must be functions.")
        self._ensure_async("once()")
        return await self._outlet.once(name, function, check)

    async def defer(self, *, deadline_seconds: float | None = None) -> DeferredCall:
        """Let an external job finish this call; return the object that completes it. Then start the job, and return.

        Call it before the job starts: from here on the result may come, and this function never runs again for this
        call. What it returns does not count; what it writes to the state does. If it raises, the call has failed. The
        run suspends until the result is submitted, or the deadline passes, which is an error for the model.
        For async tools.
        """
        _ensure_deadline(deadline_seconds)
        self._ensure_async("defer()")
        return await self._outlet.defer(deadline_seconds)

    async def wait_until(self, when: int | datetime) -> None:
        """Suspend the call until a time: epoch milliseconds, or a `datetime` with a zone. Return if it has passed.

        Nothing waits in memory: a worker, or this executor, calls the function again at that time, from its start.
        Waits that are over then return immediately, whatever they are given. So what comes before a wait must be
        harmless to repeat, or be in `once()`. For async tools.
        """
        self._ensure_async("wait_until()")
        await self._outlet.wait_until(when)

    async def ask(self, question: Json, *, deadline_seconds: float | None = None) -> Json:
        """Ask a person in the middle of the call; return the `result` of `submit_tool_result`.

        `question` is shown as it is: a string, or an object with `message` and the JSON `schema` of the answer. The run
        suspends until any process submits the answer. Then the function runs again from its start, and questions that
        were answered return immediately, as long as it asks the same ones in the same order. So what comes before a
        question must be harmless to repeat, or be in `once()`. An `error=` instead of a result, or a deadline that
        passes, is an error for the model. For async tools.
        """
        ensure_storable(question)
        _ensure_deadline(deadline_seconds)
        self._ensure_async("ask()")
        return await self._outlet.ask(question, deadline_seconds)

    def _ensure_async(self, what: str) -> None:
        if threading.get_ident() != self._home:
            raise InvalidArgument(f"{what} needs an async tool: write `async def`.")
        self._ensure_open()

    @property
    def interrupted(self) -> bool:
        """Whether the run was asked to stop; a long tool should check this and return early."""
        return self._outlet.interrupted

    def close(self) -> None:
        """Reject further use: the call has its outcome (a thread that outlives its timeout must not write)."""
        with self._lock:
            self._closed = True

    def _ensure_open(self) -> None:
        if self._closed:
            raise InvalidArgument(f"Tool call {self.tool_call_id!r} has ended: its context can no longer be used.")

    def _at_home(self, action: Callable[[], None]) -> None:
        if threading.get_ident() == self._home:
            action()
        else:
            self._loop.call_soon_threadsafe(action)


def _ensure_deadline(seconds: float | None) -> None:
    if seconds is None:
        return
    ensure_amount(seconds)
    if seconds <= 0:
        raise InvalidArgument(f"deadline_seconds must be positive, not {seconds!r}.")


def ensure_amount(value: object) -> None:
    """Reject an amount that cannot be counted."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_AMOUNT:
        raise InvalidArgument(f"An amount must be a number of at most {MAX_AMOUNT:.0e}, not {value!r:.100}.")
