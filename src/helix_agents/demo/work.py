"""What a worker of the demo does: begin the session, or wait until it can be resumed, and go on until it rests."""

from __future__ import annotations

import asyncio

from ..backends.registry import open_stores
from ..executor import AgentExecutor
from .researcher import QUESTION, make_llm, researcher

LEASE_SECONDS = 1.5
LOOK_AGAIN_SECONDS = 0.05


async def work(url: str, session_id: str) -> str:
    """Run the session until it ends or waits for somebody; its status."""
    async with open_stores(url) as stores:
        llm = make_llm()
        executor = AgentExecutor(
            stores.state, stores.streams, llm, usage_store=stores.usage, lease_seconds=LEASE_SECONDS
        )
        async with executor:
            handle = await executor.get_handle(researcher, session_id)
            if handle is None:
                handle = await executor.execute(researcher, QUESTION, session_id=session_id)
            else:
                while not (await handle.can_resume()).can_resume:  # noqa: ASYNC110  # the lease must lapse first
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                handle = await handle.resume()
            return (await handle.result()).status
