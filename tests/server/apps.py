"""Apps for `uvicorn tests.server.apps:app`, as a user's module has them: no `main`, no `asyncio.run`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from helix_agents.backends.registry import open_stores
from helix_agents.executor import AgentExecutor
from helix_agents.server import bearer_tokens, create_app
from tests.server.agents import TOKENS, make_executor


@asynccontextmanager
async def opened() -> AsyncIterator[AgentExecutor]:
    async with open_stores(os.environ["TEST_URL"]) as stores, make_executor(stores) as executor:
        yield executor


app = create_app(opened, authenticate=bearer_tokens(TOKENS))
mounted = Starlette(routes=[Mount("/agents", app=create_app(opened, authenticate=bearer_tokens(TOKENS)))])
