"""The BlobStore contract on six verbs: a blob is a head and numbered pieces, and its head is written last.

So a visible blob is complete, without one transaction for all of its bytes. This module checks arguments and digests; a
backend stores pieces.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from ...clock import Clock, system_clock
from ...errors import InvalidArgument, StoreCorrupt, StoreUnavailable
from ...ids import ensure_id
from ...retry import CONFLICT
from ...types import Page
from .contract import OCTETS, BlobInfo, BlobRef, BlobStore

MEGABYTE = 1_000_000
MAX_PAGE = 1000
PIECES_AT_ONCE = 4

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:; ?[\w-]+=[\w.-]+){0,5}")


class BlobStoreBase(BlobStore):
    """Implements BlobStore on the verbs of a backend."""

    def __init__(self, *, max_bytes: int, piece_bytes: int, clock: Clock = system_clock) -> None:
        self.max_bytes = max_bytes
        self._piece_bytes = piece_bytes
        self._clock = clock

    # -- verbs

    @abstractmethod
    async def _write_pieces(self, space: str, digest: str, first: int, pieces: list[bytes]) -> None:
        """Write pieces from number `first` on; the same pieces may be written again."""

    @abstractmethod
    async def _finish(self, space: str, info: BlobInfo, pieces: int) -> bool:
        """Write the head if all pieces are there, unless it exists; False if a piece is missing."""

    @abstractmethod
    async def _read_pieces(self, space: str, digest: str, first: int, count: int) -> list[bytes]:
        """Return pieces in order; fewer if some are missing."""

    @abstractmethod
    async def _heads(self, space: str, digests: list[str]) -> list[BlobInfo]:
        """Return the heads that exist of these."""

    @abstractmethod
    async def _page(self, space: str, after: str, limit: int) -> list[BlobInfo]:
        """Return heads with a digest greater than `after`, sorted by digest."""

    @abstractmethod
    async def _remove(self, space: str, digests: list[str] | None, stored_until: int | None) -> int:
        """Remove heads and pieces, or a whole space, stored until this time; return how many heads there were."""

    @abstractmethod
    async def _renew(self, space: str, info: BlobInfo) -> bool:
        """Replace the head of a blob, if there is one; return whether there was."""

    # -- the contract

    async def put(self, space: str, data: bytes | AsyncIterator[bytes], *, media_type: str = OCTETS) -> BlobRef:
        ensure_id(space, "the space of a blob")
        if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
            raise InvalidArgument(f"Invalid media type {media_type!r:.100}: expected for example 'image/png'.")
        whole = await self._gathered(data)
        digest = f"sha256:{hashlib.sha256(whole).hexdigest()}"
        if known := await self._renewed(space, [digest]):
            return BlobRef(digest, known[digest].size, known[digest].media_type)
        info = BlobInfo(digest, len(whole), media_type, self._clock())
        size = self._piece_bytes
        pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        for _ in CONFLICT.attempts():
            for first in range(0, len(pieces), PIECES_AT_ONCE):
                await self._write_pieces(space, digest, first, pieces[first : first + PIECES_AT_ONCE])
            if await self._finish(space, info, len(pieces)):
                stored = (await self._heads(space, [digest]) or [info])[0]
                return BlobRef(digest, stored.size, stored.media_type)
        raise StoreUnavailable(f"The blobs of {space!r} were deleted repeatedly while one was stored: try again.")

    async def get(self, space: str, digest: str, *, offset: int = 0, limit: int | None = None) -> bytes | None:
        _ensure_digest(digest)
        if (
            not isinstance(offset, int)
            or offset < 0
            or (limit is not None and (not isinstance(limit, int) or limit < 0))
        ):
            raise InvalidArgument("offset and limit of a blob must not be negative.")
        heads = await self._heads(ensure_id(space, "the space of a blob"), [digest])
        if not heads:
            return None
        end = heads[0].size if limit is None else min(offset + limit, heads[0].size)
        if offset >= end:
            return b""
        data = await self._range(space, digest, offset, end)
        if len(data) != end - offset:
            if not await self._heads(space, [digest]):
                return None  # deleted while it was read
            raise StoreCorrupt(f"Blob {digest} of {space!r} is incomplete: some of its bytes are missing.")
        if end - offset == heads[0].size and f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise StoreCorrupt(f"Blob {digest} of {space!r} is damaged: its bytes have another digest.")
        return data

    async def stat(self, space: str, digests: Iterable[str]) -> dict[str, BlobInfo]:
        wanted = [_ensure_digest(each) for each in dict.fromkeys(digests)]
        ensure_id(space, "the space of a blob")
        heads = await self._heads(space, wanted) if wanted else []
        return {head.digest: head for head in heads}

    async def link(self, from_space: str, to_space: str, digests: Iterable[str]) -> list[str]:
        ensure_id(to_space, "the space of a blob")
        wanted = list(dict.fromkeys(digests))
        known = await self.stat(from_space, wanted)
        there = await self._renewed(to_space, wanted)
        for digest, info in known.items():
            if digest not in there and not await self._copy(from_space, to_space, info):
                known = {name: each for name, each in known.items() if name != digest}
        return [digest for digest in wanted if digest not in known and digest not in there]

    async def delete(self, space: str, digests: Iterable[str] | None = None, *, stored_until: int | None = None) -> int:
        ensure_id(space, "the space of a blob")
        if digests is None:
            return await self._remove(space, None, stored_until)
        wanted = [_ensure_digest(each) for each in dict.fromkeys(digests)]
        return await self._remove(space, wanted, stored_until) if wanted else 0

    async def list(self, space: str, *, cursor: str | None = None, limit: int = MAX_PAGE) -> Page[BlobInfo]:
        ensure_id(space, "the space of a blob")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
            raise InvalidArgument(f"limit must be between 1 and {MAX_PAGE}, not {limit!r}.")
        after = "" if cursor is None else _ensure_digest(cursor)
        found = await self._page(space, after, limit + 1)
        items = found[:limit]
        has_more = len(found) > limit
        return Page(items, None, 0, limit, has_more, items[-1].digest if has_more else None)

    # -- how

    async def _renewed(self, space: str, digests: Sequence[str]) -> dict[str, BlobInfo]:
        """Renew the blobs that the space has, so that deleting an earlier incarnation leaves them; return their
        digests."""
        found = {}
        for info in await self._heads(space, [*digests]) if digests else []:
            fresh = msgspec.structs.replace(info, stored_at=self._clock())
            if await self._renew(space, fresh):
                found[info.digest] = fresh
        return found

    async def _gathered(self, data: bytes | AsyncIterator[bytes]) -> bytes:
        """Return all bytes; raise as soon as there are too many."""
        if isinstance(data, bytes | bytearray | memoryview):
            self._ensure_size(len(data))
            return bytes(data)
        if not isinstance(data, AsyncIterator):
            raise InvalidArgument(f"A blob must be bytes, not {type(data).__name__}.")
        whole = bytearray()
        async for part in data:
            whole += part
            self._ensure_size(len(whole))
        return bytes(whole)

    def _ensure_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise InvalidArgument(f"A blob may have at most {self.max_bytes:,} bytes here: keep larger data elsewhere.")

    async def _range(self, space: str, digest: str, start: int, end: int) -> bytes:
        size = self._piece_bytes
        first, last = start // size, (end - 1) // size
        data = bytearray()
        for number in range(first, last + 1, PIECES_AT_ONCE):
            count = min(PIECES_AT_ONCE, last + 1 - number)
            for piece in await self._read_pieces(space, digest, number, count):
                data += piece
        return bytes(data[start - first * size : end - first * size])

    async def _copy(self, from_space: str, to_space: str, info: BlobInfo) -> bool:
        """Copy one blob through this process; return False if it disappears in the meantime."""
        count = -(-info.size // self._piece_bytes)
        for first in range(0, count, PIECES_AT_ONCE):
            wanted = min(PIECES_AT_ONCE, count - first)
            pieces = await self._read_pieces(from_space, info.digest, first, wanted)
            if len(pieces) != wanted:
                return False
            await self._write_pieces(to_space, info.digest, first, pieces)
        return await self._finish(to_space, info, count)


def _ensure_digest(digest: object) -> str:
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InvalidArgument(f"Invalid digest {digest!r:.100}: expected 'sha256:' and 64 hexadecimal digits.")
    return digest
