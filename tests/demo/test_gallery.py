"""`helix serve` creates its demo sessions by itself, including the one after a kill -9."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helix_agents.backends.registry import open_stores
from helix_agents.demo.gallery import AT_WORK, FINISHED, RECOVERED, WAITING, gallery
from helix_agents.demo.served import demo_executor


async def test_four_sessions_come_about(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'helix.db'}"
    wanted = {
        FINISHED: "completed",
        WAITING: "suspended_client_tool",
        AT_WORK: "active",
        RECOVERED: "completed",
    }
    async with open_stores(url) as stores, demo_executor(stores) as executor, gallery(executor, stores, url):
        async with asyncio.timeout(90):
            while True:
                await executor.recover()
                states = {name: await stores.state.load_state(name) for name in wanted}
                if {name: state and state.status for name, state in states.items()} == wanted:
                    break
                await asyncio.sleep(0.2)
        runs = await stores.state.list_runs(RECOVERED)
        await executor.interrupt(AT_WORK)
    assert len(runs) > 1
