"""FileWorkspaceProvider: snapshots of the folders in which sessions work, as archives in one folder.

`expired_session_cleanup` deletes the snapshots of expired sessions. Knows files, but no stores. File operations block,
so they run in threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tarfile
from pathlib import Path

from ..clock import random_id
from ..errors import InvalidArgument
from ..ids import ensure_id

SUFFIX = ".tar.gz"


class FileWorkspaceProvider:
    """Stores snapshots in `folder`: `<folder>/<digest of the session id>/<snapshot>.tar.gz`."""

    def __init__(self, folder: str | Path) -> None:
        self.snapshots = FileSnapshots(Path(folder))


class FileSnapshots:
    """The snapshots of all sessions. A snapshot's id names its session's folder and itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def create(self, session_id: str, workspace: str | Path) -> str:
        """Store the files of a workspace as they are now; return the snapshot's id. *Atomic.*"""
        home = _home(session_id)
        return await asyncio.to_thread(self._create, home, Path(workspace))

    async def restore(self, snapshot_id: str, workspace: str | Path) -> None:
        """Extract the files of a snapshot into a folder, replacing existing ones."""
        await asyncio.to_thread(self._restore, self._path(snapshot_id), Path(workspace))

    async def list(self, session_id: str) -> list[str]:
        """Return the ids of a session's snapshots, oldest first."""
        home = _home(session_id)

        def look() -> list[str]:
            found = sorted((self._folder / home).glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
            return [f"{home}/{path.name.removesuffix(SUFFIX)}" for path in found]

        return await asyncio.to_thread(look)

    async def delete(self, snapshot_id: str) -> None:
        """Remove one snapshot, and its session's folder with the last one. *Idempotent.*"""

        def remove(path: Path) -> None:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()

        await asyncio.to_thread(remove, self._path(snapshot_id))

    def _path(self, snapshot_id: str) -> Path:
        home, _, name = snapshot_id.partition("/")
        if not home.isalnum() or not name.isalnum():
            raise InvalidArgument(f"Invalid snapshot id {snapshot_id!r}: list() shows the existing ones.")
        return self._folder / home / f"{name}{SUFFIX}"

    def _create(self, home: str, workspace: Path) -> str:
        if not workspace.is_dir():
            raise InvalidArgument(f"There is no folder {str(workspace)!r} to take a snapshot of.")
        place = self._folder / home
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = random_id()
        unfinished = place / f".{name}"
        try:
            with (
                open(unfinished, "xb", opener=_open_private) as file,
                tarfile.open(fileobj=file, mode="w:gz") as archive,
            ):
                archive.add(workspace, arcname=".")
            os.replace(unfinished, place / f"{name}{SUFFIX}")
        finally:
            unfinished.unlink(missing_ok=True)
        return f"{home}/{name}"

    def _restore(self, path: Path, workspace: Path) -> None:
        if not path.exists():
            raise InvalidArgument(f"There is no snapshot {path.name.removesuffix(SUFFIX)!r}: it may have been deleted.")
        workspace.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "r:gz") as archive:
            archive.extractall(workspace, filter="data")  # nothing outside of the workspace, no devices


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _home(session_id: str) -> str:
    """Return a folder name for a session id, which may contain characters that file systems reject."""
    return hashlib.sha256(ensure_id(session_id, "session_id").encode()).hexdigest()[:32]
