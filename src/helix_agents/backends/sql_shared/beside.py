"""The stores beside a state store in one database: streams and usage, whose rows a commit can carry."""

from __future__ import annotations

from ...stores.along import Along, Beside
from ...stores.state.commit import Applied, Commit, CommitRefused
from .driver import BatchRefused, Row, Statement
from .schema.self_migrating import MigratedDriver
from .streams.manager import SqlStreamManager
from .usage.store import SqlUsageStore

OF_STREAMS = frozenset({"producer", "stream"})
"""The guards of an append."""


class SqlBeside(Beside[SqlStreamManager, SqlUsageStore]):
    """The stores on the driver of a state store."""

    async def prepare(self) -> None:
        """Create the tables of both if they do not exist: a transaction cannot do that later."""
        for driver in (self.streams.driver, self.usage.driver):
            if isinstance(driver, MigratedDriver) and not driver.ready:
                await driver.migrate()

    def statements(self, along: Along) -> tuple[list[Statement], list[Statement]]:
        """Return the statements that change the stream, and those that record the usage."""
        if along.start is not None:
            return self.streams.starting_statements(along.start), self.spent(along)
        return ([] if along.append is None else self.streams.appending(along.append)), self.spent(along)

    def spent(self, along: Along) -> list[Statement]:
        """Return the statements that record the usage."""
        return self.usage.insertion(self.usage.checked(along.usage)) if along.usage else []

    async def landed(self, along: Along, answers: list[list[Row]]) -> int:
        """Wake the readers after the transaction; return the sequence of the last chunk."""
        sequence = 0 if along.append is None else await self.streams.appended(along.append, answers)
        if along.start is not None:
            await self.streams.started(along.start)
        if along.stream_id is not None:
            self.streams.changed(along.stream_id)
        return sequence

    async def refused(self, commit: Commit, along: Along, refused: BatchRefused) -> Applied:
        """Return why the stream undid a commit. If its chunks were stored before, the whole write has happened
        before."""
        if along.start is not None:
            await self.streams.start_refused(along.start)
        assert along.append is not None
        sequence = await self.streams.refused(along.append, refused)
        if commit.bump_version:
            raise CommitRefused("version")  # the caller checks what became of its first try
        return Applied(0, 0, 0, 0, sequence=sequence)
