"""A queue in front of another writer: after an error, no chunk that the other writer accepted is still in the queue."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from helix_agents.codec import Json
from helix_agents.streams.contract import StreamWriter
from helix_agents.streams.queued import queued


class Failing(StreamWriter):
    """Stores chunks at the next flush, and fails once: at the second chunk, or at a flush."""

    def __init__(self, *, at: str) -> None:
        self.at: str | None = at
        self.taken: list[str] = []
        self.stored: list[str] = []

    def _fail(self, here: bool) -> None:
        if here:
            self.at = None
            raise RuntimeError("a fault")

    async def write(self, chunk: Mapping[str, Json]) -> None:
        self._fail(self.at == "write" and len(self.taken) == 1)
        self.taken.append(str(chunk["delta"]))

    async def flush(self) -> int:
        self._fail(self.at == "flush")
        self.stored += self.taken[len(self.stored) :]
        return len(self.stored)

    async def close(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(("at", "stored"), [("write", ["a"]), ("flush", ["a", "b"])])
async def test_what_was_taken_before_an_error_is_stored_when_the_error_is_raised(at: str, stored: list[str]) -> None:
    inner = Failing(at=at)
    writer = queued(inner, stream_id="s", run_id="r", agent_type="a")
    for delta in ("a", "b"):
        writer.put({"type": "text_delta", "delta": delta}, linger_seconds=60.0)
    with pytest.raises(RuntimeError, match="a fault"):
        await writer.flush()
    assert inner.stored == inner.taken == stored
