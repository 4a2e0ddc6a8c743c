"""Cloudflare from outside: a commit against an insert of one row on the same way, an append against a bare request.

A real workerd on this machine, behind the bridge: a Durable Object by WebSocket, D1 by HTTP and by its REST shape. What
the network to Cloudflare adds comes on top of everything alike.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from benchmarks.machine import describe
from benchmarks.pairing import Report, pair_async
from helix_agents.backends.cloudflare.bridge import Bridge, BridgeD1, BridgeObject
from helix_agents.backends.cloudflare.d1 import D1StateStore
from helix_agents.backends.cloudflare.rest import D1Rest
from helix_agents.backends.cloudflare.streams import DurableObjectStreamManager
from helix_agents.backends.cloudflare.wire import CloudflareDriver
from helix_agents.backends.sql_shared.driver import Statement
from helix_agents.state import StateTracker
from helix_agents.types import CheckpointMeta, SessionState
from tests.cloudflare.workerd import Workerd

CUSTOM = {"items": ["x"], "count": 0}
MESSAGES = [{"role": "assistant", "content": "a few words " * 4}] * 3
CHUNK = {"type": "text_delta", "delta": "x" * 24}


class Commits:
    """Commits of 3 messages, 2 list items and a counter, staged by two calls off the clock."""

    def __init__(self, driver: CloudflareDriver) -> None:
        self._store = D1StateStore(driver)
        self._step = 0

    async def begin(self) -> None:
        await self._store.create_session("s", agent_type="a", custom_state=CUSTOM)

    async def stage(self) -> None:
        self._step += 1
        for call in (0, 1):
            tracker = StateTracker(CUSTOM)
            tracker.update(lambda draft: draft["items"].append("item"))
            if call:
                tracker.update(lambda draft: draft.increment("count"))
            writes = tracker.get_step_writes()
            await self._store.stage_changes("s", f"step{self._step}", writes, tool_call_id=f"call{call}", index=call)

    async def commit(self) -> None:
        fields = SessionState(session_id="s", agent_type="a", step_count=self._step, status="active")
        meta = CheckpointMeta(step_id=f"step{self._step}", step_count=self._step, stream_sequence=self._step)
        await self._store.save_state_and_promote_staging("s", fields, MESSAGES, meta)


async def measure_commits(report: Report, way: str, driver: CloudflareDriver, rounds: int) -> None:
    await driver.batch([Statement("CREATE TABLE IF NOT EXISTS one_row (id INTEGER PRIMARY KEY, body TEXT)")])
    insert = Statement("INSERT INTO one_row (body) VALUES (?1)", ("a few words " * 4,))
    commits = Commits(driver)
    await commits.begin()
    contestants: dict[str, Callable[[], Awaitable[object]]] = {
        "insert": lambda: driver.batch([insert]),
        "again": lambda: driver.batch([insert]),
        "commit": commits.commit,
    }
    paired = await pair_async(contestants, rounds=rounds, before=commits.stage)
    report.line(f"{way}: an insert of one row against itself", paired.ratio("again", "insert"))
    report.line(f"{way}: insert of one row, ms", paired.median_ns("insert") / 1e6)
    report.line(f"{way}: commit, ms", paired.median_ns("commit") / 1e6)
    report.line(f"{way}: commit, times the insert", paired.ratio("commit", "insert"), at_most=2.0)
    await driver.close()


async def measure_appends(report: Report, bridge: Bridge, rounds: int) -> None:
    manager = DurableObjectStreamManager(bridge, gather_seconds=0)
    writer = await manager.create_writer("s", "run", "agent")

    async def append(count: int) -> None:
        for _ in range(count):
            await writer.write(CHUNK)
        await writer.flush()

    def bare() -> Awaitable[object]:
        return bridge.http.post("/bare", {"batch": ["x" * 400]})

    plain = BridgeObject(bridge, "plain")
    await plain.batch([Statement("CREATE TABLE one_row (id INTEGER PRIMARY KEY, body TEXT)")])
    insert = Statement("INSERT INTO one_row (body) VALUES (?1)", ("x" * 400,))
    contestants: dict[str, Callable[[], Awaitable[object]]] = {
        "bare": bare,
        "insert": lambda: plain.batch([insert]),
        "one": lambda: append(1),
        "ten": lambda: append(10),
    }
    paired = await pair_async(contestants, rounds=rounds)
    report.line("a bare request, ms", paired.median_ns("bare") / 1e6)
    report.line("append of 1 chunk by WebSocket, times an insert of one row", paired.ratio("one", "insert"))
    report.line("append of 1 chunk by WebSocket, times the bare request", paired.ratio("one", "bare"), at_most=1.5)
    report.line("append of 10 chunks by WebSocket, times the bare request", paired.ratio("ten", "bare"), at_most=1.5)
    await writer.close()
    await plain.close()
    await manager.close()


async def measure(rounds: int) -> int:
    print(describe(), flush=True)
    report = Report()
    with Workerd() as workerd:
        bridge = Bridge(workerd.url, workerd.token)
        ways: dict[str, CloudflareDriver] = {
            "Durable Object, WebSocket": BridgeObject(bridge, "bench"),
            "D1, HTTP": BridgeD1(bridge, "DB0"),
            "D1, REST": D1Rest("account", "DB1", workerd.token, url=workerd.url),
        }
        for way, driver in ways.items():
            await measure_commits(report, way, driver, rounds)
        await measure_appends(report, bridge, rounds)
        await bridge.close()
    return report.exit_code()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=300)
    sys.exit(asyncio.run(measure(options.parse_args().rounds)))
