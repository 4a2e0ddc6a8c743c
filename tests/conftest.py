"""What every test may use: private real servers (see `tests/servers`)."""

from __future__ import annotations

import gc

import pytest

SLOW = (
    "cloudflare",
    "executor",
    "demo",
    "postgres",
    "redis",
    "client",
    "packaging",
    "runtimes",
    "docsite",
    "conformance",
)
"""Folders whose files take longest: they start first, so that no process is left with one of them at the end."""

pytest_plugins = ["tests.servers.fixtures", "tests.time_limit"]


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow files first; a file stays together."""
    rank = {folder: number for number, folder in enumerate(SLOW)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(SLOW)))
