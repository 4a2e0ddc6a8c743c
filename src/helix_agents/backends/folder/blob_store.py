"""FolderBlobStore: blobs as files, on a disk that all processes share. For what is too large for a database.

`<folder>/<digest of the space>/<two digits>/<rest of the digest>`: a head as JSON (`.json`) and the bytes beside it.
Both are written to a temporary file, synced and renamed; the head comes last.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from ...clock import Clock, system_clock
from ...errors import StoreUnavailable
from ...stores.blobs.base import MEGABYTE, BlobStoreBase
from ...stores.blobs.contract import BlobInfo

T = TypeVar("T")
PIECE_BYTES = 1024 * 1024


class FolderBlobStore(BlobStoreBase):
    """BlobStore on a folder, created on first use."""

    def __init__(self, folder: str | Path, *, max_bytes: int = 1000 * MEGABYTE, clock: Clock = system_clock) -> None:
        super().__init__(max_bytes=max_bytes, piece_bytes=PIECE_BYTES, clock=clock)
        self._folder = Path(folder)
        self._token = secrets.token_hex(6)
        """Names this store's unfinished files, so that two stores that write one blob do not meet."""
        self._writing = threading.Lock()
        """Tasks of this store share those files, so only one of them writes at a time."""

    async def _write_pieces(self, space: str, digest: str, first: int, pieces: list[bytes]) -> None:
        def write() -> None:
            part = self._part(space, digest)
            # Not there: another process deleted the space. `_finish` notices, and all pieces are written again.
            with suppress(FileNotFoundError):
                part.parent.mkdir(parents=True, exist_ok=True)
                # Do not truncate it: another task may be writing the same bytes.
                with open(part, "r+b" if first or part.exists() else "w+b") as file:
                    os.chmod(part, 0o600)
                    file.seek(first * PIECE_BYTES)
                    file.write(b"".join(pieces))
                    file.flush()
                    os.fsync(file.fileno())

        await self._on_disk(write, alone=True)

    async def _finish(self, space: str, info: BlobInfo, pieces: int) -> bool:
        def finish() -> bool:
            data, part = self._data(space, info.digest), self._part(space, info.digest)
            if data.exists() and self._head(space, info.digest) is not None:
                part.unlink(missing_ok=True)
                return True
            try:
                if pieces == 0:
                    data.parent.mkdir(parents=True, exist_ok=True)
                    part.touch(mode=0o600)
                # The size does not show a hole, which a deletion between the batches of two puts leaves.
                if _digest(part) != info.digest:
                    return False
                os.replace(part, data)
            except FileNotFoundError:
                return False  # another process deleted the space
            return self._write_head(data, info)

        return await self._on_disk(finish, alone=True)

    async def _read_pieces(self, space: str, digest: str, first: int, count: int) -> list[bytes]:
        def read() -> list[bytes]:
            with suppress(FileNotFoundError), open(self._data(space, digest), "rb") as file:
                file.seek(first * PIECE_BYTES)
                return [piece for _ in range(count) if (piece := file.read(PIECE_BYTES))]
            return []

        return await self._on_disk(read)

    async def _heads(self, space: str, digests: list[str]) -> list[BlobInfo]:
        def read() -> list[BlobInfo]:
            return [head for digest in digests if (head := self._head(space, digest)) is not None]

        return await self._on_disk(read)

    async def _page(self, space: str, after: str, limit: int) -> list[BlobInfo]:
        def read() -> list[BlobInfo]:
            names = sorted(f"sha256:{path.parent.name}{path.stem}" for path in self._space(space).glob("*/*.json"))
            wanted = [name for name in names if name > after][:limit]
            return [head for digest in wanted if (head := self._head(space, digest)) is not None]

        return await self._on_disk(read)

    async def _renew(self, space: str, info: BlobInfo) -> bool:
        def renew() -> bool:
            data = self._data(space, info.digest)
            if not data.exists() or self._head(space, info.digest) is None:
                return False
            return self._write_head(data, info)

        return await self._on_disk(renew, alone=True)

    async def _remove(self, space: str, digests: list[str] | None, stored_until: int | None) -> int:
        def remove() -> int:
            folder = self._space(space)
            if digests is None and stored_until is None:
                return self._remove_space(folder)
            found = folder.glob("*/*.json") if digests is None else []
            count = 0
            for digest in [f"sha256:{path.parent.name}{path.stem}" for path in found] if digests is None else digests:
                data, head = self._data(space, digest), self._head(space, digest)
                if head is not None and stored_until is not None and head.stored_at > stored_until:
                    continue
                count += head is not None
                # The head first, so that no reader sees a blob without bytes; again, as another process may renew it.
                for path in (data.with_suffix(".json"), data, data.with_suffix(".json")):
                    path.unlink(missing_ok=True)
            if digests is None and stored_until is not None:
                _remove_headless(folder, stored_until)
                _remove_renamed(folder)
            return count

        return await self._on_disk(remove, alone=True)

    # -- files

    async def _on_disk(self, work: Callable[[], T], *, alone: bool = False) -> T:
        def run() -> T:
            with self._writing if alone else nullcontext():
                return work()

        try:
            return await asyncio.to_thread(run)
        except OSError as error:
            raise StoreUnavailable(f"The blobs in {self._folder.name!r} cannot be used: {error.strerror}.") from error

    def _remove_space(self, space: Path) -> int:
        """Delete a space by renaming it first, so that a put of another process cannot end with a part of it."""
        removed = space.with_name(f"{space.name}.{self._token}-{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            os.rename(space, removed)
        count = sum(1 for _ in removed.glob("*/*.json"))
        _remove_renamed(space)
        return count

    def _space(self, space: str) -> Path:
        return self._folder / hashlib.sha256(space.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _data(self, space: str, digest: str) -> Path:
        digits = digest.removeprefix("sha256:")
        return self._space(space) / digits[:2] / digits[2:]

    def _part(self, space: str, digest: str) -> Path:
        return self._data(space, digest).with_suffix(f".{self._token}")

    def _write_head(self, data: Path, info: BlobInfo) -> bool:
        """Write the head of these bytes; return False, without a head, if another process has deleted the bytes."""
        unnamed, head = data.with_suffix(f".{self._token}.head"), data.with_suffix(".json")
        try:
            unnamed.write_bytes(msgspec.json.encode(info))
            os.replace(unnamed, head)
            _sync_folder(data.parent)
        except FileNotFoundError:
            return False
        if data.exists():
            return True
        head.unlink(missing_ok=True)
        return False

    def _head(self, space: str, digest: str) -> BlobInfo | None:
        with suppress(FileNotFoundError):
            return msgspec.json.decode(self._data(space, digest).with_suffix(".json").read_bytes(), type=BlobInfo)
        return None


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _remove_headless(space: Path, until: int) -> None:
    """Remove bytes that an interrupted deletion or put left without a head until a time, and empty folders."""
    for path in space.glob("*/*"):
        head = path.with_name(f"{path.name.partition('.')[0]}.json")
        with suppress(FileNotFoundError):
            if not head.exists() and path.stat().st_mtime_ns // 1_000_000 <= until:
                path.unlink()
    for folder in (*space.glob("*"), space):
        with suppress(OSError):
            folder.rmdir()


def _remove_renamed(space: Path) -> None:
    """Remove the folders to which this and earlier deletions have renamed a space."""
    for removed in space.parent.glob(f"{space.name}.*"):
        while removed.exists():
            try:
                shutil.rmtree(removed)
            except OSError as error:
                # Another process deletes it as well, or has just created a file in it.
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise


def _sync_folder(folder: Path) -> None:
    """Make renames durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
