"""The worker process of the demo: `python -m helix_agents.demo.worker <url> <session>`."""

import asyncio
import sys

from .work import work

if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2]))
