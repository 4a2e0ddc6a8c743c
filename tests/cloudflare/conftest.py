"""A bridge for the kit's harnesses, which the kit makes without arguments, and a private one for tests that kill it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.cloudflare.homes import Home
from tests.cloudflare.workerd import DATABASES, Workerd
from tests.servers.fixtures import started


@pytest.fixture(scope="session")
def workerd() -> Iterator[Workerd]:
    """A shared bridge. Do not kill it: see `private_workerd`."""
    with contextlib.ExitStack() as stack:
        yield started(stack, Workerd)


@pytest.fixture
def private_workerd() -> Iterator[Workerd]:
    """A bridge of the test's own, to kill and restart."""
    with contextlib.ExitStack() as stack:
        yield started(stack, Workerd)


@pytest.fixture(scope="session")
def bridge_of_harnesses(workerd: Workerd) -> Iterator[None]:
    """Tell the harnesses where the bridge is; child processes inherit it."""
    os.environ |= {"CF_URL": workerd.url, "CF_TOKEN": workerd.token}
    Home.free[:] = [f"DB{number}" for number in range(DATABASES)]
    yield
    del os.environ["CF_URL"], os.environ["CF_TOKEN"]
