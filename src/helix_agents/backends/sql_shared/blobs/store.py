"""Blobs as rows: a head for each blob, and pieces of it as base64 text."""

from __future__ import annotations

import base64

from ....clock import Clock, system_clock
from ....stores.blobs.base import MEGABYTE, BlobStoreBase
from ....stores.blobs.contract import BlobInfo
from ..driver import Row, SqlDriver, Statement
from ..queries import Queries

PIECE_BYTES = 192 * 1024
"""256 KB as base64: well below the 2 MB that a row of D1 may have."""


MAX_TIME = 2**53 - 1


class SqlBlobStore(BlobStoreBase):
    """BlobStore on a migrated database that the caller opened, and closes."""

    def __init__(
        self,
        driver: SqlDriver,
        *,
        prefix: str = "",
        max_bytes: int = 50 * MEGABYTE,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(max_bytes=max_bytes, piece_bytes=PIECE_BYTES, clock=clock)
        self._driver = driver
        self._queries = Queries("blobs/blob_queries", driver.dialect, prefix)

    async def _write_pieces(self, space: str, digest: str, first: int, pieces: list[bytes]) -> None:
        await self._driver.batch(
            [
                self._queries("write_piece", space, digest, number, base64.b64encode(piece).decode())
                for number, piece in enumerate(pieces, first)
            ]
        )

    async def _finish(self, space: str, info: BlobInfo, pieces: int) -> bool:
        finish = self._queries("finish_blob", space, info.digest, info.size, info.media_type, info.stored_at, pieces)
        read = self._queries("read_head", space, info.digest)
        *_, heads = await self._driver.batch([*self._alone(space), finish, read])
        return bool(heads)

    def _alone(self, space: str) -> list[Statement]:
        """Return statements that let finishing and deleting in a space wait for each other.

        Without them, a deletion that does not see the new head would remove its pieces. A database that runs one
        writing transaction at a time needs none.
        """
        return []

    async def _read_pieces(self, space: str, digest: str, first: int, count: int) -> list[bytes]:
        read = self._queries("read_pieces", space, digest, first, first + count)
        (rows,) = await self._driver.batch([read], read_only=True)
        return [base64.b64decode(row[0]) for row in rows]

    async def _heads(self, space: str, digests: list[str]) -> list[BlobInfo]:
        reads = [self._queries("read_head", space, digest) for digest in digests]
        return [_info(row) for rows in await self._driver.batch(reads, read_only=True) for row in rows]

    async def _page(self, space: str, after: str, limit: int) -> list[BlobInfo]:
        (rows,) = await self._driver.batch([self._queries("read_page", space, after, limit)], read_only=True)
        return [_info(row) for row in rows]

    async def _renew(self, space: str, info: BlobInfo) -> bool:
        return bool((await self._driver.batch([self._queries("renew_head", space, info.digest, info.stored_at)]))[0])

    async def _remove(self, space: str, digests: list[str] | None, stored_until: int | None) -> int:
        until = MAX_TIME if stored_until is None else stored_until
        if digests is None:
            deletes = [self._queries("delete_heads", space, until), self._queries("delete_all_pieces", space)]
        else:
            heads = [self._queries("delete_head", space, digest, until) for digest in digests]
            deletes = [*heads, *(self._queries("delete_pieces", space, digest) for digest in digests)]
        alone = self._alone(space)
        removed = await self._driver.batch([*alone, *deletes])
        return sum(len(rows) for rows in removed[len(alone) :])

    async def _copy(self, from_space: str, to_space: str, info: BlobInfo) -> bool:
        """Copy inside the database."""
        await self._driver.batch([self._queries("copy_pieces", from_space, to_space, info.digest)])
        return await self._finish(to_space, info, -(-info.size // PIECE_BYTES))


def _info(row: Row) -> BlobInfo:
    digest, size, media_type, stored_at = row
    return BlobInfo(digest, int(size), media_type, int(stored_at))
