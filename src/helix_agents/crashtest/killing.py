"""Crash tests with real processes: each is a fork of this one that ends itself with SIGKILL at its point.

Effects and questions go to a file, one line each, whole even if the process dies right after. What `make_executor`
needs of the world must be outside of this process as well.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..backends.registry import open_stores
from ..clock import random_id
from ..conformance.executor.harness import Clockwork
from ..conformance.executor.mortal import Life
from ..errors import HelixError
from .report import Effect, Report
from .rounds import MAX_LIVES, Answer, Factory, Journal, Stage, default_answer, lives_of, started

SEED = 7
BROKEN = 3
"""The exit code of a process that raised."""


class _Line(msgspec.Struct, omit_defaults=True):
    """One line of the file: an effect, a question, or the end with the data for the report."""

    effect: Effect | None = None
    asked: str | None = None
    ending: str | None = None
    points: int = 0
    kinds: dict[str, str] = {}


class FileJournal(Journal):
    """A journal that the processes of a round share."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        lines = path.read_bytes().splitlines() if path.exists() else []
        self.lines = [msgspec.json.decode(line, type=_Line) for line in lines]
        self.effects = [line.effect for line in self.lines if line.effect is not None]
        self.asked = [line.asked for line in self.lines if line.asked is not None]
        self.with_parts = {effect.tool for effect in self.effects if effect.part is not None}

    @property
    def end(self) -> _Line:
        """The end of the round, if it was reached."""
        return self.lines[-1] if self.lines and self.lines[-1].ending else _Line(ending="unfinished")

    def add(self, effect: Effect) -> None:
        """Record an effect."""
        super().add(effect)
        self.write(_Line(effect=effect))

    def ask(self, name: str) -> None:
        """Record a question about an outcome."""
        super().ask(name)
        self.write(_Line(asked=name))

    def write(self, line: _Line) -> None:
        """Add a line."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(descriptor)


class _Killing(Life):
    """A life that ends with SIGKILL instead of an error."""

    def begin(self, name: str = "") -> bool:
        """Count a call, and end the process if it is the last."""
        number = self.calls + 1
        if self.last is not None and (number > self.last or (number == self.last and not self.reply_lost)):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().begin(name)


def crashtest_by_kill(
    make: Factory,
    agent: str,
    input: str,
    *,
    reset: Callable[[], object] | None = None,
    answer: Answer = default_answer,
    every: int = 1,
    url: str | None = None,
    rounds: int | None = None,
) -> Report:
    """Do what `crashtest` does, with processes that are killed, on a SQLite file or on the stores at `url`.

    Call it where no event loop runs. `rounds`: how many, in an order that looks random; more than there are places to
    die try these again.
    """
    stage = Stage(make, agent, input, answer)
    with tempfile.TemporaryDirectory() as folder:
        killing = _KilledRounds(stage, url or f"sqlite:{folder}/crashtest.db", Path(folder), reset)
        calm = killing.run([])
        report = started(calm.end.ending or "", calm.end.kinds, calm.end.points)
        places = list(lives_of(report.points, every))
        if rounds is not None:
            random.Random(SEED).shuffle(places)
        for place, lives in itertools.islice(itertools.cycle(places), rounds or len(places)):
            journal = killing.run(list(lives))
            report.add(place, journal.end.ending or "", calm.effects, journal.effects, journal.asked)
        report.kills = killing.kills
    return report


class _KilledRounds:
    """Runs rounds, each in its own processes."""

    def __init__(self, stage: Stage, url: str, folder: Path, reset: Callable[[], object] | None) -> None:
        self._stage = stage
        self._url = url
        self._folder = folder
        self._reset = reset
        self.kills = 0

    def run(self, lives: list[Life]) -> FileJournal:
        """Run one round; return its journal."""
        if self._reset is not None:
            self._reset()
        name, clock = f"crashtest-{random_id()}", Clockwork()
        path = self._folder / f"{name}.jsonl"
        for _ in range(MAX_LIVES):
            life = lives.pop(0) if lives else Life()
            self._fork(life, clock, path, name)
            journal = FileJournal(path)
            if journal.end.kinds:
                break
            clock.pass_seconds(3600)
        path.unlink(missing_ok=True)
        return journal

    def _fork(self, life: Life, clock: Clockwork, path: Path, name: str) -> None:
        pid = os.fork()
        if pid == 0:
            code = BROKEN
            try:
                asyncio.run(self._live(_Killing(life.last, reply_lost=life.reply_lost), clock, FileJournal(path), name))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == BROKEN:
            raise HelixError("A process of the crash test failed; its standard error says why.")
        self.kills += code == -signal.SIGKILL

    async def _live(self, life: Life, clock: Clockwork, journal: FileJournal, name: str) -> None:
        async with open_stores(self._url) as stores:
            status = await self._stage.live(stores, clock, journal, life, name)
            if status is not None:
                kinds = self._stage.kinds(self._stage.make(stores))
                journal.write(_Line(ending=status, points=life.calls, kinds=kinds))
