"""What every test may use: private real servers (see `tests/servers`)."""

from __future__ import annotations

import gc

import pytest

SLOW = ("cloudflare", "executor", "postgres", "redis", "client", "packaging", "runtimes", "docsite", "conformance")
"""Folders whose files take longest: they start first, so that none of them is left to one process in the end."""

pytest_plugins = ["tests.servers.fixtures"]


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow files first; a file stays together."""
    rank = {folder: number for number, folder in enumerate(SLOW)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(SLOW)))
