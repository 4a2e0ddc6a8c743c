"""What the program of a commit takes along: chunks for the stream of the session, and usage."""

from __future__ import annotations

from ....stores.along import Along, Beside
from ....stores.state.commit import Applied, Commit, CommitRefused
from ..program.runner import Refused
from ..program.vocabulary import Program
from ..stream_manager import RedisStreamManager
from ..usage_store import RedisUsageStore


class RedisBeside(Beside[RedisStreamManager, RedisUsageStore]):
    """The stores on the client of a state store, with its prefix or another."""

    async def load(self, along: Along) -> Load:
        """Make ready what goes along; what other slots have to know of it is written now."""
        load = Load(self, along)
        await self.usage.announce(load.entries)
        return load


class Load:
    """Chunks and usage on their way."""

    def __init__(self, beside: RedisBeside, along: Along) -> None:
        self._streams, self._usage = beside
        self._append = along.append
        self._after = along.after
        self.entries = self._usage.checked(along.usage)

    def put_on(self, program: Program) -> None:
        """Let the program append the chunks and record the usage."""
        if self._append is not None:
            self._streams.append_with(program, self._append)
        self._usage.record_with(program, self.entries)

    @property
    def position(self) -> str | None:
        """Where in the stream a checkpoint of the same program is; None if nothing is appended."""
        return None if self._append is None else f"~{self._after}"

    def landed(self) -> None:
        """Wake the readers in this process."""
        if self._append is not None:
            self._streams.changed(self._append.stream_id)

    async def refused(self, commit: Commit, refused: Refused) -> Applied:
        """Raise why the program was refused. Chunks that are there already came with a write that has happened."""
        await self._usage.retract(self.entries)
        if self._append is None or not refused.reason.startswith("stream:"):
            raise CommitRefused(refused.reason)  # type: ignore[arg-type]  # the reasons that compile.py gave
        sequence = self._streams.stored_before(self._append, refused)
        if commit.bump_version:
            raise CommitRefused("version")  # before a commit is repeated, its caller finds out what became of it
        return Applied(0, 0, 0, 0, sequence=sequence)
