"""The machine a benchmark ran on, in one line: figures without it mean nothing."""

from __future__ import annotations

import os
import platform
import sqlite3


def describe() -> str:
    """Cores, processor architecture, Python and SQLite."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
