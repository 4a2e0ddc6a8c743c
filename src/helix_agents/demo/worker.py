"""The worker process of the demo: `python -m helix_agents.demo.worker <url> <session> [delay [user [tag ...]]]`."""

import asyncio
import sys

from .work import work


async def _main(url: str, session_id: str, delay_seconds: str = "0.02", user_id: str = "", *tags: str) -> None:
    await work(url, session_id, delay_seconds=float(delay_seconds), user_id=user_id or None, tags=tags)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
