"""Retry: how often something is tried again and how long to wait in between. Every such bound of the package is here.

A bound keeps a broken system from looping forever; it is not a tuning knob. Use the instance whose sentence fits, and
add one only for a situation that none of them describes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """At most `tries` tries, within `within_seconds`; the delays double from the first to the longest."""

    tries: int = 1_000_000
    first_seconds: float = 0.0
    longest_seconds: float = 0.0
    within_seconds: float = float("inf")

    def attempts(self) -> range:
        """Return the numbers of the tries, from 0."""
        return range(self.tries)

    def delay_seconds(self, attempt: int) -> float:
        """Return how long to wait after the try of that number."""
        return min(self.first_seconds * 2.0 ** min(attempt, 60), self.longest_seconds)

    def delays(self) -> Iterator[float]:
        """Yield the delays between the tries, one less than tries, until they add up to `within_seconds`."""
        waited = 0.0
        for attempt in itertools.islice(itertools.count(), self.tries - 1):
            if waited >= self.within_seconds:
                return
            delay_seconds = self.delay_seconds(attempt)
            waited += delay_seconds
            yield delay_seconds


CONFLICT = Retry(tries=50)
"""Another write came first: read again, decide again, write again."""

CONTENTION = Retry(tries=300, first_seconds=0.001, longest_seconds=0.05)
"""The same inside a store, for one session that many processes write to at the same time."""

TRANSIENT = Retry(tries=5, first_seconds=0.01, longest_seconds=0.64)
"""An error that the next try usually does not meet: a deadlock, a lost connection, a stale prepared statement."""

OUTAGE = Retry(first_seconds=0.02, longest_seconds=0.5, within_seconds=6.0)
"""A store that was there and does not reply: a restart, a failover or a moved slot must not end a run."""

RECONNECT = Retry(first_seconds=0.05, longest_seconds=1.0)
"""A connection that is only listened to. It is reopened as long as it has listeners."""

APPEARING = Retry(first_seconds=0.02, longest_seconds=1.0)
"""A stream that another process is going to create."""

CLOSING = Retry(tries=50, first_seconds=0.02, longest_seconds=0.02, within_seconds=10.0)
"""Another process is just ending, closing or deleting the session."""

DELETING = Retry(first_seconds=0.02, longest_seconds=0.02, within_seconds=2.0)
"""A run that was asked to stop before its session is deleted."""

RESULT = Retry(first_seconds=0.2, longest_seconds=0.2)
"""A run of another process is going to stop; nothing announces it."""

LIVENESS = Retry(first_seconds=1.0, longest_seconds=1.0)
"""A run of another process may have died."""

TURN = Retry(first_seconds=0.005, longest_seconds=0.005, within_seconds=10.0)
"""Another request of this Worker uses the same store, and requests cannot wake each other."""

DELIVERY = Retry(first_seconds=5.0, longest_seconds=3600.0, within_seconds=3 * 86_400.0)
"""A webhook whose receiver does not accept an event. After that time the event is dropped and logged."""

ENGINE = Retry(tries=1000, first_seconds=1.0, longest_seconds=1.0)
"""A durable engine repeats a step whose store is away; giving up would fail the workflow."""
