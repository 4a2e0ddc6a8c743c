"""The agent on LangGraph with `durability="sync"`: a checkpoint is stored before the next step, as ours is."""

from __future__ import annotations

import asyncio

from benchmarks.peers.langgraph import PACKAGES, main
from benchmarks.peers.protocol import serve

if __name__ == "__main__":
    serve(lambda task, clock: asyncio.run(main(task, clock, durability="sync")), PACKAGES)
