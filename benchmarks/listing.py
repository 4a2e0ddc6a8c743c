"""`list_sessions` by filter and keyset, without a count: a page must cost the same among 1,000 and 100,000 sessions.

    python -m benchmarks.listing

The rows are put in by plain SQL, since only reading is measured; each filter asks for a page in the middle of what it
finds. What is rare stays rare: three sessions carry the rare tag and the rare status, whatever the size. The plan of
every statement is checked: none may read a whole table or sort more than a page.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import machine
from benchmarks.pairing import Paired, Report, pair_async
from helix_agents.backends.sql_shared.queries import Queries
from helix_agents.backends.sql_shared.state.listing import page_statements
from helix_agents.backends.sqlite.state_store import SqliteStateStore
from helix_agents.stores.state.commit import SessionFilter

SMALL, LARGE = 1_000, 100_000
PAGE = 20
RARE = 3
ROUNDS = 200

FILTERS: Mapping[str, dict[str, Any]] = {
    "no filter": {},
    "user": {"user_id": "user-7"},
    "agent type": {"agent_type": "agent-1"},
    "status": {"status": "active"},
    "rare status": {"status": "paused"},
    "three statuses": {"status": ("active", "failed", "paused")},
    "roots only": {"parent_session_id": None},
    "parent": {"parent_session_id": "session-00000000"},
    "tag": {"tags": ["common"]},
    "rare tag": {"tags": ["rare"]},
    "two tags": {"tags": ["common", "even"]},
    "metadata": {"metadata": {"region": "north"}},
    "rare metadata": {"metadata": {"ticket": "4711"}},
    "tag and status": {"tags": ["common"], "status": "active"},
    "user and status": {"user_id": "user-7", "status": "active"},
    "created from": {"created_from": 1_000_500},
    "expires before": {"expires_before": 2_000},
}
"""What is asked for. A combination of two common properties is common here too."""

LOSSES: Mapping[str, dict[str, Any]] = {
    "common user and rare status": {"user_id": "user-1", "status": "paused"},
    "common tag and rare status": {"tags": ["common"], "status": "paused"},
    "two tags, one of them rare": {"tags": ["common", "rare"]},
}
"""Both properties have an index, but not together: the page walks along one of them until it has found enough."""


def rows(count: int) -> Iterator[tuple[Any, ...]]:
    """Session rows. Properties are spread evenly, so that a page of a common one is found among the newest."""
    for number in range(count):
        rare = number < RARE
        status = "paused" if rare else ("active", "completed", "failed")[number % 3]
        tags = ["common"] + (["even"] if number % 2 == 0 else []) + (["rare"] if rare else [])
        metadata = {"region": "north" if number % 2 else "south"} | ({"ticket": "4711"} if rare else {})
        parent = "session-00000000" if number % 4 == 1 else None
        yield (
            *(f"session-{number:08d}", f"agent-{number % 3}", f"session-{number:08d}", parent, status),
            *(1_000 if rare else None, f"user-{number % 10}", json.dumps(tags), json.dumps(metadata)),
            *(1_000_000 + number, 1_000_000 + number, f"{number:032x}"),
        )


async def filled(path: Path, count: int) -> SqliteStateStore:
    store = SqliteStateStore(path, synchronous="OFF")
    await store.session_exists("session")
    database = sqlite3.connect(path)
    database.executemany(
        "INSERT INTO __agents_states (session_id, agent_type, stream_id, parent_session_id, status, expires_at, "
        "user_id, tags, metadata, created_at, updated_at, incarnation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows(count),
    )
    database.commit()
    database.close()
    return store


async def compare(stores: Mapping[int, SqliteStateStore], wanted: dict[str, Any]) -> Paired:
    """The second page of what a filter finds (the first, if there is but one), at both sizes."""

    async def asking(store: SqliteStateStore) -> Callable[[], Awaitable[object]]:
        first = await store.list_sessions(**wanted, limit=PAGE, count=False)

        async def ask() -> None:
            await store.list_sessions(**wanted, limit=PAGE, cursor=first.next_cursor, count=False)

        return ask

    sizes = {"small": SMALL, "large": LARGE, "small again": SMALL}
    contestants = {label: await asking(stores[size]) for label, size in sizes.items()}
    return await pair_async(contestants, rounds=ROUNDS, warmup=10)


def show(paired: Paired) -> None:
    print(f"       {paired.median_ns('large') / 1000:.0f} us, at {SMALL:,} {paired.median_ns('small') / 1000:.0f} us")


def plan_faults(path: Path, wanted: dict[str, Any]) -> list[str]:
    """What in the plans of a page's statements reads a whole table, or sorts what it should find in order."""
    given = dict(wanted)
    status = given.pop("status", ())
    parent = given.pop("parent_session_id", "")
    asked = SessionFilter(
        **{name: value for name, value in given.items() if name not in ("tags", "metadata")},
        statuses=(status,) if isinstance(status, str) else tuple(status),
        roots_only=parent is None,
        parent_session_id=parent or None,
        tags=tuple(given.get("tags", ())),
        metadata=tuple(given.get("metadata", {}).items()),
        after=(1_000_900, "session-00000900"),
    )
    database = sqlite3.connect(path)
    lines = []
    for statement in page_statements(Queries("state/queries", "sqlite"), asked, PAGE):
        lines += [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.params)]
    database.close()
    # A walk along an index in its order is what a page without a filter is; expired sessions are few and may be sorted.
    scans = [line for line in lines if line.startswith("SCAN") and "USING" not in line]
    sorts = [line for line in lines if "TEMP B-TREE" in line and "expires_before" not in wanted]
    return scans + sorts


async def run(report: Report, folder: Path) -> None:
    stores = {size: await filled(folder / f"{size}.db", size) for size in (SMALL, LARGE)}
    for name, wanted in FILTERS.items():
        paired = await compare(stores, wanted)
        report.line(f"{name}: page at {LARGE:,}, times at {SMALL:,}", paired.ratio("large", "small"), at_most=1.5)
        show(paired)
        if name == "no filter":
            report.self_check(name, paired, "small", "small again")
    for name, wanted in LOSSES.items():
        paired = await compare(stores, wanted)
        print(f"loss {name}: {paired.ratio('large', 'small'):.2f} times; no one index knows both")
        show(paired)
    for store in stores.values():
        await store.close()
    faults = {name: plan_faults(folder / f"{LARGE}.db", wanted) for name, wanted in FILTERS.items()}
    for name, lines in faults.items():
        for line in lines:
            print(f"       {name}: {line}")
    report.line("plans that read or sort a whole table", sum(map(bool, faults.values())), at_most=0)


def main() -> int:
    print(machine.describe())
    report = Report()
    with TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        asyncio.run(run(report, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
