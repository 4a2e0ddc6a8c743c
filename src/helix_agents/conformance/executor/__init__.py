"""Checks of the executor (X1 to X6, X8): the same runs on every pair of stores. Importing this fills `EXECUTOR`."""

from . import (
    x1_again,
    x1_claim,
    x1_keys,
    x1_loop,
    x1_queue,
    x1_watch,
    x2_crash,
    x2_kill,
    x2_outage,
    x2_stall,
    x3_people,
    x3_waiting,
    x4_interrupt,
    x5_children,
    x6_context,
    x6_tools,
    x8_handover,
)
from .harness import EXECUTOR

__all__ = [
    "EXECUTOR",
    "x1_again",
    "x1_claim",
    "x1_keys",
    "x1_loop",
    "x1_queue",
    "x1_watch",
    "x2_crash",
    "x2_kill",
    "x2_outage",
    "x2_stall",
    "x3_people",
    "x3_waiting",
    "x4_interrupt",
    "x5_children",
    "x6_context",
    "x6_tools",
    "x8_handover",
]
