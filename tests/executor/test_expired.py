"""Expired sessions leave their readers with the committed state, even if they had crashed or were waiting."""

from __future__ import annotations

import msgspec

from helix_agents import expired_session_cleanup, open_stores
from helix_agents.clock import system_clock
from helix_agents.conformance.executor.harness import Clockwork, family
from helix_agents.conformance.executor.x2_fault import agree, crash, suspend


async def test_an_expired_session_leaves_what_is_committed() -> None:
    clock = Clockwork()
    async with open_stores("memory:") as stores:
        await crash(stores, "crashed", clock, commits=2)
        await suspend(stores, "waiting", clock)
        for member in [*await family(stores, "crashed"), *await family(stores, "waiting")]:
            session = await stores.state.load_state(member)
            assert session is not None
            expired = msgspec.structs.replace(session, custom_state=None, expires_at=system_clock() - 1)
            await stores.state.save_state(member, expired)
        summary = await expired_session_cleanup(stores.state, stream_manager=stores.streams)
        assert (summary.marked, summary.errors) == (4, [])
        await agree(stores, "crashed", clock, "crashed")
        await agree(stores, "waiting", clock, "waiting")
