"""`./dev soak --minutes N --backend X --seed S`: run sessions under faults, and report violations.

    ./dev soak                                one minute on SQLite
    ./dev soak --minutes 10 --backend redis   also: postgres, cluster, all
    ./dev soak --seed 42                      the same faults again

Exits with 1 if anything acknowledged was lost, anything was doubled, a sequence has a hole, or something is orphaned.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
from pathlib import Path

import msgspec

from tests.soak.publish import publish
from tests.soak.run import Report, soak
from tests.soak.targets import BACKENDS


def main(arguments: list[str]) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="./dev soak", description="Run sessions under faults and check the backend.")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults are injected (1)")
    parser.add_argument("--backend", choices=[*BACKENDS, "all"], default="sqlite")
    parser.add_argument("--seed", type=int, help="decides which faults come when (default: random)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the report as one line of JSON")
    parser.add_argument("--publish", action="store_true", help="write the figures into docs/faults.md")
    given = parser.parse_args(arguments)
    for name in ("helix_agents", "asyncpg"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # faults are the rule here
    seed = secrets.randbits(32) if given.seed is None else given.seed
    failed = False
    for backend in BACKENDS if given.backend == "all" else [given.backend]:
        print(f"{backend}: {given.minutes:g} minutes, seed {seed} ...", flush=True)
        report = asyncio.run(soak(backend, given.minutes * 60, seed))
        show(report)
        failed = failed or bool(report.violations)
        if given.publish:
            publish(report)
        if given.json:
            with given.json.open("ab") as out:
                out.write(msgspec.json.encode(report) + b"\n")
    return 1 if failed else 0


def show(report: Report) -> None:
    """Print one report."""
    total = sum(report.faults.values())
    print(f"  {report.sessions} sessions, {report.turns} turns, {report.chunks_read} chunks read, {total} faults:")
    for name, count in report.faults.items():
        print(f"    {count:5}  {name}")
    print(f"  {len(report.violations)} violations")
    for violation in report.violations:
        print(f"    {violation}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
