"""The agent loop: one implementation, on the contracts of stores and streams only."""

from .executor import AgentExecutor
from .handle import AgentResult, RunHandle
from .inbox import Waiting
from .run.hooks import Hooks, RunInfo
from .run.model_call import RetryPolicy
from .session.resumable import CanResume
from .step.decisions import Outcome
from .step.questions import ToolResultReceipt
from .stream.snapshot import SessionView
from .workers.pool import WorkerInfo, WorkerPool
from .workers.stepper import Stepper, Ticket

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
