"""Puts and deletions of one folder that overlap, in a fixed order, and deletions whose process dies."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from pathlib import Path

import pytest

from helix_agents.backends.folder.blob_store import PIECE_BYTES, FolderBlobStore
from helix_agents.clock import system_clock
from helix_agents.stores.blobs.base import PIECES_AT_ONCE
from helix_agents.stores.blobs.contract import OCTETS, BlobInfo


class Upload:
    """One `put` of nine pieces in three batches, which the test writes one at a time."""

    def __init__(self, store: FolderBlobStore) -> None:
        self.store = store
        self.data = b"".join(bytes([number]) * PIECE_BYTES for number in range(9))
        self.digest = f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    async def write(self, batch: int) -> None:
        first = batch * PIECES_AT_ONCE
        pieces = [self.data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES] for number in range(first, 9)]
        await self.store._write_pieces("s", self.digest, first, pieces[:PIECES_AT_ONCE])

    async def finish(self) -> bool:
        return await self.store._finish("s", BlobInfo(self.digest, len(self.data), OCTETS, system_clock()), 9)


async def test_a_second_put_of_the_same_bytes_leaves_the_pieces_of_the_first(tmp_path: Path) -> None:
    store = FolderBlobStore(tmp_path)
    upload = Upload(store)
    for batch in (0, 1, 0, 2):  # the second put begins before the last batch of the first
        await upload.write(batch)
    assert await upload.finish()
    for batch in (1, 2):
        await upload.write(batch)
    assert await upload.finish()
    assert await store.get("s", upload.digest) == upload.data


async def test_a_blob_with_a_hole_is_not_finished(tmp_path: Path) -> None:
    store = FolderBlobStore(tmp_path)
    upload = Upload(store)
    for batch in (0, 1):
        await upload.write(batch)
    await store.delete("s")
    for batch in (0, 2):  # the second put's first batch, the first put's last one: the size is right
        await upload.write(batch)
    assert not await upload.finish()
    assert await store.get("s", upload.digest) is None
    for batch in (0, 1, 2):
        await upload.write(batch)
    assert await upload.finish()
    assert await store.get("s", upload.digest) == upload.data


async def test_a_head_that_lost_its_bytes_does_not_keep_the_blob_from_being_stored_again(tmp_path: Path) -> None:
    store = FolderBlobStore(tmp_path)
    ref = await store.put("s", b"bytes")
    files(tmp_path)[1].unlink()
    assert await store.put("s", b"bytes") == ref
    assert await store.get("s", ref.digest) == b"bytes"


DYING = """
import asyncio, os, sys
from helix_agents.backends.folder.blob_store import FolderBlobStore

left = int(sys.argv[2])

def die_at(event, arguments):
    global left
    if event in ("os.remove", "os.rmdir", "os.rename"):
        left -= 1
        if left < 0:
            os._exit(9)

async def main():
    sys.addaudithook(die_at)
    until = None if sys.argv[3] == "all" else int(sys.argv[3])
    await FolderBlobStore(sys.argv[1]).delete("s", stored_until=until)

asyncio.run(main())
"""


@pytest.mark.parametrize("stored_until", ["all", str(2**53 - 1)])
async def test_a_deletion_whose_process_dies_can_be_repeated(tmp_path: Path, stored_until: str) -> None:
    store = FolderBlobStore(tmp_path / "blobs")
    for calls in range(30):
        for data in (b"one", b"two"):
            await store.put("s", data)
            await store.put("other", data)
        arguments = ("-c", DYING, str(tmp_path / "blobs"), str(calls), stored_until)
        died = await (await asyncio.create_subprocess_exec(sys.executable, *arguments)).wait() == 9
        await store.delete("s", stored_until=None if stored_until == "all" else int(stored_until))
        assert len(files(tmp_path)) == 4, f"files are left after a death at call {calls}"
        assert len(os.listdir(tmp_path / "blobs")) == 1, f"a folder is left after a death at call {calls}"
        if not died:
            assert calls >= 4
            return
    pytest.fail("the deletion never ended")


async def test_a_deletion_leaves_the_put_that_another_process_has_begun_since(tmp_path: Path) -> None:
    store, other = FolderBlobStore(tmp_path), FolderBlobStore(tmp_path)
    upload = Upload(store)
    await other.put("s", b"old")
    before = system_clock()
    while system_clock() <= before:
        pass
    for batch in (0, 1, 2):
        await upload.write(batch)
    assert await other.delete("s", stored_until=before) == 1
    assert await upload.finish()
    assert await store.get("s", upload.digest) == upload.data


def files(folder: Path) -> list[Path]:
    """Return heads first, then their data."""
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.suffix != ".json")
