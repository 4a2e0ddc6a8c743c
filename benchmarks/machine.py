"""The machine a benchmark ran on, in one line: figures without it mean nothing."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path
from statistics import median
from time import perf_counter_ns


def describe() -> str:
    """Return cores, processor, system, Python and SQLite."""
    return (
        f"{os.cpu_count()} cores, {_processor()}, {platform.system()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def _processor() -> str:
    """Return the processor's model, where the system names it, and its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return " ".join([*models[:1], platform.machine()])


def sync_micros(folder: Path) -> float:
    """How long the disk takes to sync a page that is overwritten, as the log of a database is."""
    path = folder / "sync"
    path.write_bytes(bytes(2**20))
    taken = []
    with path.open("r+b", buffering=0) as file:
        os.fsync(file.fileno())
        for place in range(200):
            file.seek(4096 * place)
            file.write(bytes(4096))
            start = perf_counter_ns()
            os.fsync(file.fileno())
            taken.append(perf_counter_ns() - start)
    return median(taken) / 1000
