"""What every test may use: private real servers (see `tests/servers`)."""

from __future__ import annotations

import gc

pytest_plugins = ["tests.servers.fixtures"]


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()
