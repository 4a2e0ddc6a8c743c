"""StopSignal: a request to stop that a run passes on to the runs of its sub-agents."""

from __future__ import annotations

from collections.abc import Callable


class StopSignal:
    """Requested at most twice: an interrupt, then possibly an abort. Belongs to one event loop."""

    def __init__(self) -> None:
        self.requested = False
        self.aborted = False
        self.reason: str | None = None
        self._held = False
        self._listeners: list[Callable[[], object]] = []
        self._children: list[StopSignal] = []

    def request(self, reason: str | None, *, abort: bool = False) -> None:
        """Request a stop: at the next safe point, or with `abort` immediately."""
        if self._held or (self.requested and (self.aborted or not abort)):
            return
        self.requested = True
        self.aborted = abort
        self.reason = reason
        for listener in list(self._listeners):
            listener()
        for signal in self._children:
            signal.request(reason, abort=abort)

    def hold(self) -> bool:
        """Clear the request and ignore further ones until `release`; return whether there was one."""
        was, self.requested, self.aborted, self.reason, self._held = self.requested, False, False, None, True
        return was

    def release(self) -> None:
        """Accept requests again."""
        self._held = False

    def child(self) -> StopSignal:
        """Return a sub-agent's signal, which is triggered with this one."""
        signal = StopSignal()
        self._children.append(signal)
        if self.requested:
            signal.request(self.reason, abort=self.aborted)
        return signal

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` at every later request; return a function that unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
