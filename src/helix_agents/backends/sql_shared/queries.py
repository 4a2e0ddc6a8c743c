"""Named SQL: every statement has a name, one sentence and its text, in a file that can be read without Python.

A file looks like this:

    -- name: count_messages
    -- How many messages a session has.
    SELECT message_count FROM __agents_states WHERE session_id = ?1;

Where a technology needs other words, `queries.postgres_overrides.sql` beside `queries.sql` defines the name again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files

from ...errors import InvalidArgument
from .driver import Dialect, Statement, Value

_NAME = re.compile(r"^-- name: *(\w+)[^\n]*\n", re.MULTILINE)
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,30}")


class Queries:
    """The statements of one file in the wording of one dialect, for tables with one prefix."""

    def __init__(self, name: str, dialect: Dialect, prefix: str = "", *, package: str | None = None) -> None:
        own = {} if dialect == "sqlite" else _load(f"{name}.{dialect}_overrides.sql", package, missing_ok=True)
        texts = _load(f"{name}.sql", package) | own
        self.own_names = own.keys()
        """The names of statements that this dialect overrides."""
        self.texts = {key: with_prefix(text, prefix) for key, text in texts.items()}

    def __call__(self, name: str, *params: Value) -> Statement:
        """Return the named statement with its parameters."""
        return Statement(self.texts[name], params)

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    def names(self) -> Iterable[str]:
        """Yield all names in the order of the file."""
        return self.texts.keys()


def with_prefix(sql: str, prefix: str) -> str:
    """Return the same SQL for an application whose tables have a prefix."""
    if not prefix:
        return sql
    if not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(f"A table prefix must be a short lower-case identifier, not {prefix!r}.")
    return sql.replace("__agents_", f"{prefix}__agents_")


def _load(filename: str, package: str | None, *, missing_ok: bool = False) -> dict[str, str]:
    resource = files(package or __package__).joinpath(filename)
    if missing_ok and not resource.is_file():
        return {}
    parts = _NAME.split(resource.read_text(encoding="utf-8"))
    return {name: _bare(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(body: str) -> str:
    lines = (line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
