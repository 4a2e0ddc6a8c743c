"""A driver whose first batch brings the schema up to date, for stores that are built by hand on a path or a pool."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....stores.state.keyed_lock import KeyedLock
from ..driver import Dialect, Row, SqlDriver, Statement
from .migrate import FAMILIES, migrate


class MigratedDriver:
    """`SqlDriver` in front of another one: migrates once. Several stores may share it."""

    def __init__(self, driver: SqlDriver, *, prefix: str = "", families: Collection[str] = FAMILIES) -> None:
        self._driver = driver
        self._prefix = prefix
        self._families = families
        self.ready = False
        self._locks = KeyedLock()

    @property
    def dialect(self) -> Dialect:
        return self._driver.dialect

    @property
    def max_parameter_bytes(self) -> int:
        return self._driver.max_parameter_bytes

    async def batch(self, statements: Sequence[Statement], *, read_only: bool = False) -> list[list[Row]]:
        if not self.ready:
            await self.migrate()
        return await self._driver.batch(statements, read_only=read_only)

    async def migrate(self) -> None:
        """Bring the schema up to date, once."""
        await self._locks.take("migration")
        try:
            if not self.ready:
                await migrate(self._driver, prefix=self._prefix, families=self._families)
                self.ready = True
        finally:
            self._locks.give("migration")

    async def close(self) -> None:
        await self._driver.close()
