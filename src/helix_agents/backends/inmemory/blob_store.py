"""InMemoryBlobStore: blobs in dictionaries, for as long as the object lives."""

from __future__ import annotations

from ...clock import Clock, system_clock
from ...stores.blobs.base import MEGABYTE, BlobStoreBase
from ...stores.blobs.contract import BlobInfo


class InMemoryBlobStore(BlobStoreBase):
    """BlobStore in memory. Several stores on the same `data` see the same blobs."""

    def __init__(
        self,
        *,
        data: dict[str, dict[str, tuple[BlobInfo, list[bytes]]]] | None = None,
        max_bytes: int = 50 * MEGABYTE,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(max_bytes=max_bytes, piece_bytes=256 * 1024, clock=clock)
        self._spaces = {} if data is None else data
        self._pieces: dict[tuple[str, str], dict[int, bytes]] = {}

    async def _write_pieces(self, space: str, digest: str, first: int, pieces: list[bytes]) -> None:
        self._pieces.setdefault((space, digest), {}).update(enumerate(pieces, first))

    async def _finish(self, space: str, info: BlobInfo, pieces: int) -> bool:
        written = self._pieces.pop((space, info.digest), {})
        blobs = self._spaces.setdefault(space, {})
        if info.digest not in blobs:
            if len(written) != pieces:
                return False
            blobs[info.digest] = (info, [written[number] for number in range(pieces)])
        return True

    async def _read_pieces(self, space: str, digest: str, first: int, count: int) -> list[bytes]:
        _, pieces = self._spaces.get(space, {}).get(digest, (None, []))
        return pieces[first : first + count]

    async def _heads(self, space: str, digests: list[str]) -> list[BlobInfo]:
        blobs = self._spaces.get(space, {})
        return [blobs[digest][0] for digest in digests if digest in blobs]

    async def _page(self, space: str, after: str, limit: int) -> list[BlobInfo]:
        found = sorted(digest for digest in self._spaces.get(space, {}) if digest > after)
        return await self._heads(space, found[:limit])

    async def _renew(self, space: str, info: BlobInfo) -> bool:
        blobs = self._spaces.get(space, {})
        if info.digest in blobs:
            blobs[info.digest] = (info, blobs[info.digest][1])
        return info.digest in blobs

    async def _remove(self, space: str, digests: list[str] | None, stored_until: int | None) -> int:
        blobs = self._spaces.get(space, {})
        doomed = [digest for digest in (blobs if digests is None else digests) if digest in blobs]
        if stored_until is not None:
            doomed = [digest for digest in doomed if blobs[digest][0].stored_at <= stored_until]
        for digest in doomed:
            del blobs[digest]
        if not blobs:
            self._spaces.pop(space, None)
        for key in [key for key in self._pieces if key[0] == space and (digests is None or key[1] in digests)]:
            del self._pieces[key]
        return len(doomed)
