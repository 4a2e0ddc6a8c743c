"""Operations on whole spaces of blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from .contract import BlobInfo, BlobStore

REQUESTS = "helix/requests"
"""The space of the texts behind request fingerprints, which all sessions share. Not a session's."""


async def blobs_in(store: BlobStore, space: str) -> AsyncIterator[BlobInfo]:
    """Yield every blob of a space, page by page."""
    cursor: str | None = None
    while True:
        page = await store.list(space, cursor=cursor)
        for info in page.items:
            yield info
        if page.next_cursor is None:
            return
        cursor = page.next_cursor


async def link_space(store: BlobStore, from_space: str, to_space: str) -> None:
    """Add all blobs of one space to another."""
    digests = [info.digest async for info in blobs_in(store, from_space)]
    if digests:
        await store.link(from_space, to_space, digests)
