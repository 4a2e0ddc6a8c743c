"""State on a SQLite file: the SQL verbs, and commits that look, decide and write in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...clock import Clock, IdSource, random_id, system_clock
from ...stores.along import Along
from ...stores.state.commit import Applied, CellName, CellTexts, Commit
from ...stores.usage.contract import UsageStore
from ...streams.contract import StreamManager
from ..sql_shared.beside import OF_STREAMS, SqlBeside
from ..sql_shared.driver import BatchRefused
from ..sql_shared.schema.self_migrating import MigratedDriver
from ..sql_shared.state.planned_commit import planned_commits
from ..sql_shared.state.store import SqlStateStore, as_commit_refusal
from .driver import SqliteDriver, Synchronous
from .joint import joint_commits


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
        # D1 has no transactions to look around in, only batches.
        self._commits = None if d1_limits else planned_commits(prefix)
        self._joint = joint_commits(prefix)
        self._beside = None if d1_limits else beside
        super().__init__(self._migrated, prefix=prefix, clock=clock, ids=ids)

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        if self._commits is None:
            return await super()._apply(commit, want)
        if not self._migrated.ready:
            await self._migrated.migrate()
        if commit.along is not None:
            return await self._apply_along(commit, commit.along, tuple(want))
        return await self._sqlite.call(self._commits.run, (commit, tuple(want)))

    def carries(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        return self._beside is not None and self._beside.holds(streams, usage)

    async def _apply_along(self, commit: Commit, along: Along, want: tuple[CellName, ...]) -> tuple[Applied, CellTexts]:
        assert self._beside is not None
        streams = self._beside.streams
        plan = None if along.append is None else streams.planned(along.append)
        noting = self._beside.spent(along)
        try:
            answer, appended = await self._sqlite.call(self._joint.run, ((commit, want), plan, noting, along.after))
        except BatchRefused as refused:
            if refused.reason not in OF_STREAMS:
                raise as_commit_refusal(refused) from refused
            return await self._beside.refused(commit, along, refused), {}
        (applied, cells), (sequence, floors) = answer, appended
        if along.append is not None:
            await streams.trim(along.append.stream_id, floors)
            streams.changed(along.append.stream_id)
        return applied._replace(sequence=sequence), cells

    async def close(self) -> None:
        if self._own_driver:
            await self._driver.close()
