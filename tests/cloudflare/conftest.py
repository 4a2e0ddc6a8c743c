"""A bridge for the kit's harnesses, which the kit makes without arguments, a private one for tests that kill it, and
the Workers in Python."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.cloudflare.client import Client, new_session
from tests.cloudflare.homes import Home
from tests.cloudflare.workerd import AGENTS, ASSISTANT, DATABASES, INSIDE, KIT, PythonWorkerd, Workerd
from tests.servers.fixtures import started


@pytest.fixture(scope="session")
def workerd() -> Iterator[Workerd]:
    """A shared bridge. Do not kill it: see `private_workerd`."""
    with contextlib.ExitStack() as stack:
        yield started(stack, Workerd)


@pytest.fixture
def private_workerd() -> Iterator[Workerd]:
    """The test's own bridge, to kill and restart."""
    with contextlib.ExitStack() as stack:
        yield started(stack, Workerd)


@pytest.fixture(scope="session")
def bridge_of_harnesses(workerd: Workerd) -> Iterator[None]:
    """Tell the harnesses where the bridge is; child processes inherit it."""
    os.environ |= {"CF_URL": workerd.url, "CF_TOKEN": workerd.token}
    Home.free[:] = [f"DB{number}" for number in range(DATABASES)]
    yield
    del os.environ["CF_URL"], os.environ["CF_TOKEN"]


@pytest.fixture(scope="session")
def python_workers() -> Iterator[PythonWorkerd]:
    """The kit, a server of agents and the example, in one isolate: Python starts slowly there.

    It may be killed and restarted: every test uses its own objects.
    """
    with contextlib.ExitStack() as stack:
        yield started(stack, lambda: PythonWorkerd(KIT, AGENTS, ASSISTANT, beside=[INSIDE / "costs.py"]))


@pytest.fixture
async def client(python_workers: PythonWorkerd) -> AsyncIterator[Client]:
    """Of the server of agents."""
    async with new_session() as session:
        yield Client(python_workers, session)
