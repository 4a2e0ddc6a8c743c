"""The agent loop: one implementation, which uses only the contracts of stores and streams."""

from .executor import AgentExecutor
from .handle import AgentResult, RunHandle, result_of
from .inbox import Waiting
from .later.schedules import Schedule, ScheduleOptions
from .later.tokens import HookTokens
from .later.webhooks import Webhook
from .options import ExecuteOptions, Input, Request, SubmitOptions
from .remote import Completion
from .retrying import impatient
from .run.hooks import INTERRUPTED, Hooks, ModelAnswer, RunInfo
from .run.model_call import RetryPolicy
from .services import Services
from .session.admin import restore_session
from .session.closing import Ending, close, decided, fail_session
from .session.observe import CanResume, Sessions, SessionStores, find
from .session.questions import ToolResultReceipt, all_waiting, open_requests
from .session.standing import UNCLOSED, Action, Intent, Standing, decide, open_run
from .step.decisions import Outcome
from .stream.follow import Follower, StreamPlace, outcome_without_stream
from .stream.leftover import drop_leftover, stream_of
from .stream.prepare import close_stream
from .stream.snapshot import SessionView, take_snapshot
from .workers import Stepper, Ticket, WorkerInfo, WorkerPool

__all__ = [
    "INTERRUPTED",
    "Action",
    "AgentExecutor",
    "AgentResult",
    "CanResume",
    "Completion",
    "Ending",
    "ExecuteOptions",
    "Follower",
    "HookTokens",
    "Hooks",
    "Input",
    "Intent",
    "ModelAnswer",
    "Outcome",
    "Request",
    "RetryPolicy",
    "RunHandle",
    "RunInfo",
    "Schedule",
    "ScheduleOptions",
    "Services",
    "SessionStores",
    "SessionView",
    "Sessions",
    "Standing",
    "Stepper",
    "StreamPlace",
    "SubmitOptions",
    "UNCLOSED",
    "Ticket",
    "ToolResultReceipt",
    "Waiting",
    "Webhook",
    "WorkerInfo",
    "WorkerPool",
    "all_waiting",
    "close",
    "close_stream",
    "decide",
    "decided",
    "drop_leftover",
    "fail_session",
    "find",
    "impatient",
    "open_requests",
    "open_run",
    "outcome_without_stream",
    "restore_session",
    "result_of",
    "stream_of",
    "take_snapshot",
]
