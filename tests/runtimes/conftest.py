"""A Temporal server and a process that forks workers, for all tests of this folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.runtimes.worker_crashes import WorkerForks
from tests.servers.fixtures import started
from tests.servers.temporal import TemporalServer

LONG_HISTORY = 20
"""Short enough for workflows in tests to restart their history."""


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[TemporalServer]:
    """A shared server. Do not kill it."""
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: TemporalServer(long_history=LONG_HISTORY))


@pytest.fixture(scope="session")
def forks() -> Iterator[WorkerForks]:
    """Processes for one request each."""
    source = WorkerForks()
    yield source
    source.close()
