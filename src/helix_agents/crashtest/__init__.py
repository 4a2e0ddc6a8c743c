"""Crash-test an agent: kill it at every durable point, continue it, and count the effects of its tools.

`assert_crash_safe(make_executor, "agent", "input")` in a test of yours; `helix crashtest` on the command line.
"""

from .report import Report
from .rounds import assert_crash_safe, crashtest

__all__ = ["Report", "assert_crash_safe", "crashtest"]
