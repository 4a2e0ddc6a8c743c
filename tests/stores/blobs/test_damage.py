"""Blobs whose bytes were changed behind the store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helix_agents.backends.folder.blob_store import FolderBlobStore
from helix_agents.backends.sqlite.blob_store import SqliteBlobStore
from helix_agents.errors import StoreCorrupt


def damage_file(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    "statement", ["UPDATE __agents_blob_pieces SET data = 'b3RoZXI='", "DELETE FROM __agents_blob_pieces"]
)
async def test_changed_rows_are_noticed(tmp_path: Path, statement: str) -> None:
    async with SqliteBlobStore(tmp_path / "a.db") as store:
        ref = await store.put("s", b"bytes")
        damage_file(tmp_path / "a.db", statement)
        with pytest.raises(StoreCorrupt):
            await store.get("s", ref.digest)


async def test_changed_files_are_noticed(tmp_path: Path) -> None:
    store = FolderBlobStore(tmp_path)
    ref = await store.put("s", b"bytes")
    overwrite(tmp_path, b"other")
    with pytest.raises(StoreCorrupt):
        await store.get("s", ref.digest)


def overwrite(folder: Path, data: bytes) -> None:
    (file,) = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json")
    file.write_bytes(data)


async def test_a_deletion_in_the_middle_of_a_put_leaves_no_part(tmp_path: Path) -> None:
    writer, other = FolderBlobStore(tmp_path), FolderBlobStore(tmp_path)
    data = os.urandom(9_000_000)

    async def delete_after(milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)
        await other.delete("s")

    for milliseconds in range(60):
        ref, *_ = await asyncio.gather(writer.put("s", data), delete_after(milliseconds), delete_after(milliseconds))
        assert await writer.get("s", ref.digest) in (None, data), f"deleted after {milliseconds} ms"
    await other.delete("s")
    assert os.listdir(tmp_path) == []
