"""Migrations: forward only, in place, safe when many processes start at once.

`migrations/NNNN_name.sql` holds the statements of one step, separated by `;` at the end of a line;
`NNNN_name.postgres.sql` replaces it where the technology needs other words. A step and its line in
`__agents_migrations` are one batch, so a step has happened as a whole or not at all, and of many processes exactly one
makes it: the others run into its line and look again.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

from ...clock import Clock, system_clock
from ...errors import SchemaTooNew
from .driver import Dialect, GuardTripped, SqlDriver, Statement
from .queries import with_prefix

_FILE = re.compile(r"(\d{4})_(\w+?)(?:\.(sqlite|postgres))?\.sql")
_STATEMENT_END = re.compile(r";[ \t]*$", re.MULTILINE)

_LEDGER = (
    "CREATE TABLE IF NOT EXISTS __agents_migrations "
    "(version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
)


class Migration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    statements: tuple[str, ...]


def known_migrations(dialect: Dialect) -> list[Migration]:
    """All steps in order, in the wording of `dialect`."""
    found: dict[int, tuple[str, str]] = {}
    for resource in sorted(files(__package__).joinpath("migrations").iterdir(), key=lambda each: each.name):
        match = _FILE.fullmatch(resource.name)
        # The plain file sorts behind `.postgres.sql`, hence "plain never replaces specific".
        if match and match[3] in (None, dialect) and (match[3] or int(match[1]) not in found):
            found[int(match[1])] = (match[2], resource.read_text(encoding="utf-8"))
    return [Migration(version, name, _split(text)) for version, (name, text) in sorted(found.items())]


async def applied_versions(driver: SqlDriver, *, prefix: str = "") -> list[int]:
    """The versions that the database has; creates the ledger if need be."""
    select = Statement(with_prefix("SELECT version FROM __agents_migrations ORDER BY version", prefix))
    rows = await driver.batch([Statement(with_prefix(_LEDGER, prefix)), select])
    return [int(row[0]) for row in rows[1]]


async def migrate(driver: SqlDriver, *, prefix: str = "", clock: Clock = system_clock) -> list[int]:
    """Bring the schema up to date; answer the versions that this call applied. Raises `SchemaTooNew`."""
    migrations = known_migrations(driver.dialect)
    applied = await applied_versions(driver, prefix=prefix)
    newest = migrations[-1].version
    if applied and applied[-1] > newest:
        raise SchemaTooNew(applied[-1], newest)
    return [
        each.version
        for each in migrations
        if each.version not in applied and await _apply(driver, each, prefix=prefix, now=clock())
    ]


async def _apply(driver: SqlDriver, migration: Migration, *, prefix: str, now: int) -> bool:
    record = "INSERT INTO __agents_migrations (version, name, applied_at) VALUES (?1, ?2, ?3)"
    steps = [Statement(with_prefix(record, prefix), (migration.version, migration.name, now))]
    steps += [Statement(with_prefix(text, prefix)) for text in migration.statements]
    try:
        await driver.batch(steps)
    except GuardTripped as tripped:
        if "__agents_migrations" not in tripped.reason:
            raise
        return False  # another process was faster
    return True


def _split(text: str) -> tuple[str, ...]:
    """Statements end with `;` at the end of a line; a trigger's inner statements are indented on lines of their own."""
    without_comments = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    parts: list[str] = []
    pending = ""
    for part in _STATEMENT_END.split(without_comments):
        pending = f"{pending};{part}" if pending else part
        # CREATE TRIGGER ... BEGIN a; b; END: the statement is complete only at its END; a body in $$ at the second $$.
        trigger = re.match(r"\s*CREATE TRIGGER", pending) and re.search(r"\bBEGIN\b", pending)
        if (trigger and not re.search(r"\bEND\s*$", pending)) or pending.count("$$") % 2:
            continue
        if pending.strip():
            parts.append(pending.strip())
        pending = ""
    return tuple(parts)
