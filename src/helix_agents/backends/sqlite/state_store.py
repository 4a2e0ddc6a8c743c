"""State in a SQLite file: the SQL verbs, and commits that read, decide and write in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from ...clock import Clock, IdSource, random_id, system_clock
from ...stores.state.commit import Applied, CellName, Commit
from ..sql_shared.beside import SqlBeside
from ..sql_shared.joint import apply_along, joint_commits
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.state.planned_commit import planned_commits
from ..sql_shared.state.store import SqlStateStore
from .driver import SqliteDriver, Synchronous


class SqliteStateStore(SqlStateStore):
    """StateStore on a file, created and migrated on first use; `close` releases it.

    Any number of processes may share the file. Pass `driver` to share the connection of other stores; it then stays
    open. `d1_limits`: keep to what Cloudflare D1 can do.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        prefix: str = "",
        synchronous: Synchronous = "FULL",
        d1_limits: bool = False,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        driver: SqliteDriver | None = None,
        beside: SqlBeside | None = None,
    ) -> None:
        self._own_driver = driver is None
        self._sqlite = driver or SqliteDriver(path, synchronous=synchronous, d1_limits=d1_limits)
        self._migrated = MigratedDriver(self._sqlite, prefix=prefix)
        # D1 has no interactive transactions, only batches.
        self._commits = None if d1_limits else planned_commits(prefix)
        self._joint = joint_commits(prefix)
        super().__init__(self._migrated, prefix=prefix, clock=clock, ids=ids, beside=beside)

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        if self._commits is None:
            return await super()._apply(commit, want)
        if not self._migrated.ready:
            await self._migrated.migrate()
        if commit.along is not None and self._beside is not None:
            run = partial(self._sqlite.call, self._joint.run)
            return await apply_along(self._beside, commit, commit.along, tuple(want), run)
        return await self._sqlite.call(self._commits.run, (commit, tuple(want)))

    async def close(self) -> None:
        if self._own_driver:
            await self._driver.close()
