"""BlobStore: images, files and long tool results beside the conversation, addressed by their content.

A *space* holds the blobs of one root session; sub-agents share it. Messages refer to a blob by its digest, so the order
is always: put the blob, then commit the message. A crash in between leaves an unused blob, never a broken reference.

- B1 content-addressed: the digest is computed here; putting the same bytes again is a no-op.
- B2 whole or absent: a blob that was cut off, cancelled or rejected is not visible.
- B3 links: a space can take over blobs of another, and keeps them when the other is deleted.
- B4 deleted with the space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

import msgspec

from ...types import Page

OCTETS = "application/octet-stream"


class BlobRef(msgspec.Struct, frozen=True):
    """A message's reference to a blob."""

    digest: str
    """`sha256:` and 64 hexadecimal digits."""
    size: int
    media_type: str = OCTETS


class BlobInfo(msgspec.Struct, frozen=True):
    """What a store knows about a blob."""

    digest: str
    size: int
    media_type: str
    stored_at: int


class BlobStore(ABC):
    """All blobs of one backend. Bad input raises `InvalidArgument` before anything is written."""

    max_bytes: int
    """The largest blob this store accepts."""

    @abstractmethod
    async def put(self, space: str, data: bytes | AsyncIterator[bytes], *, media_type: str = OCTETS) -> BlobRef:
        """Store bytes and return their reference. *Atomic* (B2), *idempotent* (B1): the first media type stays.

        Storing or linking a blob again renews its `stored_at`.
        """

    @abstractmethod
    async def get(self, space: str, digest: str, *, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Return the bytes from `offset` on, at most `limit` of them; None if the space has no such blob.

        A blob that is read as a whole is compared with its digest. Raises `StoreCorrupt` if it was damaged.
        """

    @abstractmethod
    async def stat(self, space: str, digests: Iterable[str]) -> dict[str, BlobInfo]:
        """Return information about those of the blobs that the space has."""

    @abstractmethod
    async def link(self, from_space: str, to_space: str, digests: Iterable[str]) -> list[str]:
        """Add these blobs to another space (B3); return those that are missing. *Idempotent.*"""

    @abstractmethod
    async def delete(self, space: str, digests: Iterable[str] | None = None, *, stored_until: int | None = None) -> int:
        """Remove blobs, or the whole space (B4); return how many there were. *Idempotent.*

        `stored_until`: leave the blobs that were stored later, however late the call comes.
        """

    @abstractmethod
    async def list(self, space: str, *, cursor: str | None = None, limit: int = 1000) -> Page[BlobInfo]:
        """Return the blobs of a space. *Ordered:* by digest. `limit` is 1 to 1,000."""

    async def close(self) -> None:
        """Release what this store opened itself, never what the caller passed in."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
