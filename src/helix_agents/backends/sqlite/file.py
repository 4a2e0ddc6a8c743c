"""The database file on disk: who may read it. Knows files, not SQL."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ...clock import random_id

OWNER_ONLY = 0o600


def create_private_file(path: str) -> None:
    """Create the database file, readable by its owner only, if it does not exist. *Idempotent.*

    SQLite would create it with the process's umask, usually readable by everyone, and gives its log the same mode.
    An existing file keeps its mode. The file is made under another name and then linked: closing a descriptor of a
    database that another thread has opened would drop that thread's locks.
    """
    if path == ":memory:" or not path or os.path.lexists(path):
        return
    new = Path(f"{path}.{random_id()}.new")
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
        with contextlib.suppress(FileExistsError):  # another process created it since then
            os.link(new, path)
    except OSError:
        return  # no such folder, or no links here: SQLite creates the file, or reports what is wrong
    finally:
        new.unlink(missing_ok=True)
