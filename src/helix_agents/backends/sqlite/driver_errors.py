"""Translate errors of SQLite into outcomes or the library's errors."""

from __future__ import annotations

import sqlite3

from ...errors import HelixError, InvalidArgument, StoreCorrupt, StoreError, StoreUnavailable
from ...stores.state.commit import CommitRefused
from ..sql_shared.driver import BatchRefused
from ..sql_shared.state.refusals import refused_batch


def translated(error: BaseException, path: str) -> BaseException:
    """Return an error of the driver as an outcome or an error of the library, with its cause."""
    ours: BaseException
    text = str(error)
    if isinstance(error, HelixError | BatchRefused | CommitRefused):
        return error
    if isinstance(error, OverflowError | UnicodeError):
        ours = InvalidArgument(f"A value cannot be stored: {text}")
        ours.__cause__ = error
        return ours
    if isinstance(error, sqlite3.IntegrityError):
        ours = refused_batch(text) or StoreError(f"{path}: {text}")
    elif "locked" in text:
        ours = StoreUnavailable(f"{path} is locked by another process: {text}. Try again.", nothing_written=True)
    elif "readonly" in text:
        ours = StoreUnavailable(
            f"{path} cannot be written: {text}. Check the file's permissions.", nothing_written=True
        )
    elif "disk is full" in text or "full" in text:
        ours = StoreUnavailable(
            f"{path}: {text}. Free some space and try again; nothing was written.", nothing_written=True
        )
    elif "not a database" in text or "malformed" in text:
        ours = StoreCorrupt(f"{path} is damaged or not a SQLite database: {text}. Restore it from a backup.")
    elif "unable to open" in text:
        ours = StoreUnavailable(f"{path} cannot be opened: {text}. Check that its folder exists.", nothing_written=True)
    elif "too big" in text:
        ours = StoreError(f"{path}: a value is larger than the database allows ({text}).")
    elif isinstance(error, sqlite3.OperationalError):
        ours = StoreUnavailable(f"{path}: {text}")
    else:
        ours = StoreError(f"{path}: {text}")
    ours.__cause__ = error
    return ours
