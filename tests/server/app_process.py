"""The server process of the tests: `python -m tests.server.app_process <url> [delay] [heartbeat] [max streams]`."""

from __future__ import annotations

import asyncio
import sys

from helix_agents.backends.registry import open_stores
from helix_agents.server import bearer_tokens, create_app
from helix_agents.server.serve import serve
from tests.server.agents import MAX_BODY_BYTES, TOKENS, make_executor


async def main(url: str, delay_seconds: str = "0", heartbeat_seconds: str = "15", max_streams: str = "1000") -> None:
    async with open_stores(url) as stores, make_executor(stores, delay_seconds=float(delay_seconds)) as executor:
        app = create_app(
            executor,
            authenticate=bearer_tokens(TOKENS),
            allow_origins=["https://app.example.com"],
            max_body_bytes=MAX_BODY_BYTES,
            max_streams_per_user=int(max_streams),
            heartbeat_seconds=float(heartbeat_seconds),
        )
        await serve(app, port=0, on_ready=lambda address: print(address, flush=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
