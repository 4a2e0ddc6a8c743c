"""Chunks, a stream start and usage that the program of a commit carries with it."""

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
        """Prepare what a program carries; entries in other slots are written now."""
        load = Load(self, along)
        await self.usage.announce(load.entries)
        return load


class Load:
    """What one program carries."""

    def __init__(self, beside: RedisBeside, along: Along) -> None:
        self._streams, self._usage = beside
        self._append, self._start = along.append, along.start
        self._after = along.after
        self.entries = self._usage.checked(along.usage)

    def put_on(self, program: Program) -> None:
        """Add the stream change and the usage to the program."""
        if self._append is not None:
            self._streams.append_with(program, self._append)
        if self._start is not None:
            self._streams.start_with(program, self._start)
        self._usage.record_with(program, self.entries)

    @property
    def position(self) -> str | None:
        """The stream position of a checkpoint made by the same program; None if nothing is appended."""
        return None if self._append is None else f"~{self._after}"

    def landed(self) -> None:
        """Wake the readers in this process."""
        if (changed := self._append or self._start) is not None:
            self._streams.changed(changed.stream_id)

    async def refused(self, commit: Commit, refused: Refused) -> Applied:
        """Raise the reason why the program was rejected. If its chunks are already stored, the write has already
        happened."""
        await self._usage.retract(self.entries)
        changed = self._append or self._start
        if changed is None or not refused.reason.startswith("stream:"):
            raise CommitRefused(refused.reason)  # type: ignore[arg-type]  # the reasons that compile.py gave
        sequence = self._streams.stored_before(changed, refused)
        if commit.bump_version:
            raise CommitRefused("version")  # before a commit is repeated, its caller finds out what became of it
        return Applied(0, 0, 0, 0, sequence=sequence)
