"""A limit for every test: one that waits for something that never happens fails, with the stacks of all its threads.

The process ends, because nothing else interrupts a blocked thread; under xdist the test is reported as the one that
crashed its worker. `HELIX_TEST_SECONDS` sets another limit. Soak tests have none.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

LIMIT_SECONDS = 900.0
_STDERR = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")
"""The terminal: while a test runs, pytest captures the usual one."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give the test its time."""
    if item.get_closest_marker("soak") is not None or "HELIX_SOAK" in os.environ:
        return (yield)
    seconds = float(os.environ.get("HELIX_TEST_SECONDS", LIMIT_SECONDS))
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
