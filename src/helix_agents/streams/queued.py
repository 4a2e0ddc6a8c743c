"""A queue in front of a third-party stream writer, for callers that write chunks without waiting.

Writers of `StreamManagerBase` already have such a queue. Other stream managers need only implement the contract's
`write`, `flush` and `close`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..clock import system_clock
from ..codec import decode
from .contract import StreamWriter
from .records import NewChunk
from .writer import BatchingWriter


class QueuedWriter(BatchingWriter):
    """A `BatchingWriter` that stores its chunks through another writer, which retries by itself."""

    def __init__(self, inner: StreamWriter, *, stream_id: str, run_id: str, agent_type: str) -> None:
        super().__init__(
            self._hand_over,
            stream_id=stream_id,
            run_id=run_id,
            agent_type=agent_type,
            producer_id=run_id,
            clock=system_clock,
            retry_delays_seconds=(),
        )
        self._inner = inner
        self._handed_over = 0
        """How many chunks the inner writer has accepted: a retried batch continues after them."""

    async def _hand_over(self, producer_id: str, counter: int, chunks: Sequence[NewChunk]) -> int:
        first = counter - len(chunks)
        try:
            for new in chunks[max(0, self._handed_over - first) :]:
                await self._inner.write(decode(new.text))
                self._handed_over += 1
            self._handed_over = counter
            return await self._inner.flush()
        except Exception:
            with suppress(Exception):
                await self._inner.flush()  # accepted chunks must not arrive later, after a rewind
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._inner.close()


def queued(writer: StreamWriter, *, stream_id: str, run_id: str, agent_type: str) -> BatchingWriter:
    """Return the writer itself if it accepts chunks without waiting, else a queue in front of it."""
    if isinstance(writer, BatchingWriter):
        return writer
    return QueuedWriter(writer, stream_id=stream_id, run_id=run_id, agent_type=agent_type)
