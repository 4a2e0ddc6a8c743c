"""Crash tests of an agent: it is killed at every durable point and continued, and the effects of its tools are counted.

`assert_crash_safe(make_executor, "agent", "input")` in a test of yours; `helix crashtest` on the command line.
"""

from .report import Report
from .rounds import assert_crash_safe, crashtest

__all__ = ["Report", "assert_crash_safe", "crashtest"]
