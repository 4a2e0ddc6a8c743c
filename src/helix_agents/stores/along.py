"""Along: chunks and usage that a write of the state store carries in the same transaction.

Where all three live in one database (`StateStore.carries`), the chunks that announce a write and its usage become
visible with it or not at all: one transaction instead of three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..codec import Json
from ..streams.contract import StreamManager
from ..streams.records import Append, NewChunk, StreamStart
from .usage.contract import UsageEntry, UsageStore

News = Callable[[str, Sequence[str]], Sequence[NewChunk]]
"""(checkpoint id, writes lost in the merge) -> the chunks that announce the commit."""


class Carrier:
    """A state store whose writes may carry chunks and usage."""

    def carries(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        """Return whether writes can carry chunks and usage `along` to these stores: then all of it happens, or none."""
        return False

    def carries_to(self, session_id: str, stream_id: str) -> bool:
        """Return whether writes of this session can carry to that stream. On a cluster the two may be on different
        servers."""
        return True


Streams = TypeVar("Streams", bound=StreamManager)
Usage = TypeVar("Usage", bound=UsageStore)


class Beside(NamedTuple, Generic[Streams, Usage]):
    """The stores in the same database as a state store, to which its writes can carry."""

    streams: Streams
    usage: Usage

    def holds(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        """Return whether these are the given stores."""
        return streams is self.streams and usage in (None, self.usage)


class Along(msgspec.Struct, frozen=True):
    """Chunks and usage that are stored with a write or not at all.

    `append`: the last `after` of these chunks come after the stream position that a checkpoint records. `news`: makes
    the chunks that announce a commit, which depend on the result of its merge. `start`: the stream of a new turn starts
    with this write; never with chunks.
    """

    append: Append | None = None
    usage: Sequence[UsageEntry | Mapping[str, Json]] = ()
    news: News | None = None
    after: int = 0
    start: StreamStart | None = None

    @property
    def stream_id(self) -> str | None:
        """The stream that the write changes."""
        changed = self.append or self.start
        return None if changed is None else changed.stream_id

    def with_announcement(self, checkpoint_id: str, warnings: Sequence[str]) -> Along:
        """Return this with the chunks that announce the commit added, if there are any."""
        if self.news is None or self.append is None:
            return self
        news = self.news(checkpoint_id, warnings)
        chunks = [*self.append.chunks, *news]
        append = msgspec.structs.replace(self.append, chunks=chunks, counter=self.append.counter + len(news))
        return Along(append, self.usage, after=self.after + len(news))
