"""Runs that any worker can start or continue: finding them, the pool, the stepper."""

from .claimable import SkippedSessions, due_sessions
from .pool import WorkerInfo, WorkerPool, list_workers
from .stats import recovered_today
from .stepper import Stepper, Ticket
from .wakeup import wake_workers

__all__ = [
    "WorkerPool",
    "WorkerInfo",
    "list_workers",
    "Stepper",
    "Ticket",
    "due_sessions",
    "SkippedSessions",
    "recovered_today",
    "wake_workers",
]
