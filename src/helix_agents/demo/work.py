"""The work of a demo worker: start the session, or wait until it can be resumed, and run it until it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..backends.registry import open_stores
from ..executor import AgentExecutor
from .researcher import QUESTION, make_llm, researcher

LEASE_SECONDS = 1.5
LOOK_AGAIN_SECONDS = 0.05


async def work(
    url: str, session_id: str, *, delay_seconds: float = 0.02, user_id: str | None = None, tags: Sequence[str] = ()
) -> str:
    """Run the session until it ends or waits for a person; return its status. `delay_seconds`: how slowly the model
    types."""
    async with open_stores(url) as stores:
        llm = make_llm(delay_seconds)
        executor = AgentExecutor(
            stores.state, stores.streams, llm, usage_store=stores.usage, lease_seconds=LEASE_SECONDS
        )
        async with executor:
            handle = await executor.get_handle(researcher, session_id)
            if handle is None:
                handle = await executor.execute(researcher, QUESTION, session_id=session_id, user_id=user_id, tags=tags)
            else:
                while not (await handle.can_resume()).can_resume:  # noqa: ASYNC110  # the lease must lapse first
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                handle = await handle.resume()
            return (await handle.result()).status
