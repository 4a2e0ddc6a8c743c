"""Checks of the executor (X1 to X5): the same runs on every pair of stores. Importing this fills `EXECUTOR`."""

from . import x1_loop, x2_crash, x2_kill, x3_people, x4_interrupt, x5_children
from .harness import EXECUTOR, ExecutorHarness, StoreSet

__all__ = [
    "EXECUTOR",
    "ExecutorHarness",
    "StoreSet",
    "x1_loop",
    "x2_crash",
    "x2_kill",
    "x3_people",
    "x4_interrupt",
    "x5_children",
]
