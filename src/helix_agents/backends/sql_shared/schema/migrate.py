"""Migrations: forward only, in place, safe when many processes start at once.

`migrations/NNNN_name.sql` holds the statements of one step, separated by `;` at the end of a line;
`NNNN_name.sqlite.sql` and `NNNN_name.postgres.sql` replace it where a dialect needs its own. Nothing has been released
yet, so there is one step: edit `0001_initial`, do not add a second. A line `-- family: streams` names the store whose
tables the statements below it create, so a database can leave out the stores that it does not hold: a Durable Object
pays for every row of its schema. `-- family: every` is for what all families share. `{compact}` becomes WITHOUT ROWID
where the families include `compact`.

All missing steps are one batch together with their rows in `__agents_migrations`: it happens as a whole or not at all.
Of many processes exactly one applies it; the others fail on its rows and look again.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from ....clock import Clock, system_clock
from ....errors import NotMigrated, SchemaTooNew, StoreUnavailable
from ....retry import CONFLICT
from ..driver import BatchRefused, Dialect, SqlDriver, Statement
from ..queries import with_prefix

FOLDER: Traversable = files(__package__).joinpath("migrations")
FAMILIES = frozenset({"state", "streams", "usage", "memory", "blobs"})
EVERY = "every"
COMPACT = "compact"
"""An option beside families: the same tables with fewer rows to write, for databases that bill each row."""
COMPACT_STATE = frozenset({"state", COMPACT})
COMPACT_USAGE = frozenset({"usage", COMPACT})

_FILE = re.compile(r"(\d{4})_(\w+?)(?:\.(sqlite|postgres))?\.sql")
_FAMILY = re.compile(r"^-- family: *(\w+) *$", re.MULTILINE)
_STATEMENT_END = re.compile(r";[ \t]*$", re.MULTILINE)

_LEDGER = (
    "CREATE TABLE IF NOT EXISTS __agents_migrations "
    "(version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
)
_RECORD = "INSERT INTO __agents_migrations (version, name, applied_at) VALUES (?1, ?2, ?3)"
# If another process has changed the line in the meantime, this runs into it and undoes the batch.
_UNCHANGED = (
    "INSERT INTO __agents_migrations (version, name, applied_at) "
    "SELECT version, name, applied_at FROM __agents_migrations WHERE version = ?1 AND name <> ?2"
)
_EXTEND = "UPDATE __agents_migrations SET name = ?2 WHERE version = ?1"

LEDGER = "__agents_migrations"
_SELECT = "SELECT version, name FROM __agents_migrations ORDER BY version"


class Migration(NamedTuple):
    """One step of the schema; each part is a family and the statements that concern it."""

    version: int
    name: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def families(self) -> frozenset[str]:
        return frozenset(family for family, _ in self.parts)

    def of(self, families: Collection[str]) -> tuple[str, ...]:
        """Return the statements that concern these families, in the order of the file."""
        tree = " WITHOUT ROWID" if COMPACT in families else ""
        return tuple(
            text.replace(" {compact}", tree) for family, texts in self.parts if family in families for text in texts
        )

    def title(self, families: Collection[str]) -> str:
        """Return the ledger name of a step applied for these families; the bare name if all were applied."""
        if self.families <= set(families):
            return self.name
        return f"{self.name}: {', '.join(sorted(self.families.intersection(families)))}"

    def done(self, title: str | None) -> frozenset[str]:
        """Return the families that are done, according to the ledger."""
        if title is None:
            return frozenset()
        _, colon, listed = title.partition(": ")
        return frozenset(listed.split(", ")) if colon else self.families


def known_migrations(dialect: Dialect) -> list[Migration]:
    """Return all steps in order, in the wording of `dialect`."""
    found: dict[int, tuple[str, str]] = {}
    for resource in sorted(FOLDER.iterdir(), key=lambda each: each.name):
        match = _FILE.fullmatch(resource.name)
        version, name, only = match.groups() if match else ("0", "", "")
        # The plain file sorts behind `.postgres.sql`, hence "plain never replaces specific".
        if only in (None, dialect) and (only or int(version) not in found):
            found[int(version)] = (name, resource.read_text(encoding="utf-8"))
    return [Migration(version, name, _parts(text)) for version, (name, text) in sorted(found.items())]


async def applied_versions(driver: SqlDriver, *, prefix: str = "") -> list[int]:
    """Return the versions that the database has; create the ledger if necessary."""
    return list(await _ledger(driver, prefix))


async def migrate(
    driver: SqlDriver, *, prefix: str = "", families: Collection[str] = FAMILIES, clock: Clock = system_clock
) -> list[int]:
    """Bring the tables of these families up to date; return the versions that this call applied.

    Raises `SchemaTooNew` if the database is newer than this library.
    """
    migrations = known_migrations(driver.dialect)
    for _ in CONFLICT.attempts():
        ledger = await _ledger(driver, prefix)
        newest = migrations[-1].version
        if ledger and max(ledger) > newest:
            raise SchemaTooNew(max(ledger), newest)
        missing = _missing(migrations, ledger, families)
        if not missing:
            return []
        now = clock()
        steps = [
            step
            for each, lacking in missing
            for step in _steps(each, lacking, ledger.get(each.version), now, compact=COMPACT in families)
        ]
        try:
            await driver.batch([Statement(with_prefix(sql, prefix), params) for sql, params in steps])
        except BatchRefused as refused:
            if "__agents_migrations" not in refused.reason:
                raise
            continue  # another process was faster
        return [each.version for each, _ in missing]
    raise StoreUnavailable("Other processes keep changing the schema at the same time. Try again.")


def _missing(
    migrations: list[Migration], ledger: dict[int, str], families: Collection[str]
) -> list[tuple[Migration, frozenset[str]]]:
    """Return the steps that a database still needs for these families, each with the families it lacks."""
    return [
        (each, lacking)
        for each in migrations
        if (lacking := each.families.intersection({*families, EVERY}) - each.done(ledger.get(each.version)))
    ]


def _steps(
    migration: Migration, lacking: frozenset[str], title: str | None, now: int, *, compact: bool
) -> list[Statement]:
    """Return the statements that create what these families lack, and the ledger row that records it."""
    version, now_done = migration.version, migration.title(lacking | migration.done(title))
    record = (
        [Statement(_RECORD, (version, now_done, now))]
        if title is None
        else [Statement(_UNCHANGED, (version, title)), Statement(_EXTEND, (version, now_done))]
    )
    return record + [Statement(text) for text in migration.of(lacking | {COMPACT} if compact else lacking)]


async def ensure_migrated(
    driver: SqlDriver, place: str, *, prefix: str = "", families: Collection[str] = FAMILIES
) -> None:
    """Check without changing anything: raise `NotMigrated` if a step is missing, `SchemaTooNew` if there are unknown
    ones."""
    migrations = known_migrations(driver.dialect)
    ledger = await _ledger_as_it_is(driver, prefix) or {}
    needed, found = migrations[-1].version, max(ledger, default=0)
    if found > needed:
        raise SchemaTooNew(found, needed)
    if _missing(migrations, ledger, families):
        raise NotMigrated(place, found, needed)


async def _ledger(driver: SqlDriver, prefix: str) -> dict[int, str]:
    """Return the ledger, created if necessary. Reads first, so that it waits for no writer if nothing is missing."""
    found = await _ledger_as_it_is(driver, prefix) if driver.dialect == "sqlite" else None
    if found is not None:
        return found
    rows = await driver.batch([Statement(with_prefix(_LEDGER, prefix)), Statement(with_prefix(_SELECT, prefix))])
    return {int(version): name for version, name in rows[1]}


async def _ledger_as_it_is(driver: SqlDriver, prefix: str) -> dict[int, str] | None:
    """Return the ledger of a SQLite file without creating it; None if there is none."""
    name = with_prefix(LEDGER, prefix)
    there = Statement("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1", (name,))
    if not (await driver.batch([there], read_only=True))[0][0][0]:
        return None
    rows = await driver.batch([Statement(with_prefix(_SELECT, prefix))], read_only=True)
    return {int(version): name for version, name in rows[0]}


def _parts(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    before, *rest = _FAMILY.split(text)
    found = zip((EVERY, *rest[0::2]), (before, *rest[1::2]), strict=True)
    return tuple((family, statements) for family, part in found if (statements := _split(part)))


def _split(text: str) -> tuple[str, ...]:
    """Split a file into statements, which end with `;` at the end of a line; statements inside a trigger are indented
    on lines of their own."""
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
