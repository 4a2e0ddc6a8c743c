"""The agent loop: one implementation, on the contracts of stores and streams only."""

from .handle import AgentResult, RunHandle
from .hooks import Hooks, RunInfo
from .local import AgentExecutor
from .modelcall import RetryPolicy
from .pool import WorkerInfo, WorkerPool
from .resumable import CanResume
from .step import Outcome
from .stepper import Stepper, Ticket
from .suspension import ToolResultReceipt
from .waiting import Waiting
from .watching import SessionView

__all__ = [
    "AgentExecutor",
    "RunHandle",
    "AgentResult",
    "CanResume",
    "ToolResultReceipt",
    "WorkerPool",
    "WorkerInfo",
    "Stepper",
    "Ticket",
    "Waiting",
    "SessionView",
    "RetryPolicy",
    "Hooks",
    "RunInfo",
    "Outcome",
]
