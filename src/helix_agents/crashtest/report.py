"""The report of a crash test: results of its rounds by tool. Plain values, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

MAY_REPEAT = ("read", "idempotent")
UNSAID = "unsaid"
"""The kind of a tool that does not declare its effect."""
SHOWN = 5


class Effect(msgspec.Struct, frozen=True):
    """One effect that happened: a call that returned, or one part of a call."""

    tool: str
    tool_call_id: str
    arguments: Any
    part: str | None = None
    result: Any = None

    @property
    def name(self) -> str:
        """Tool and part, as shown in the report."""
        return self.tool if self.part is None else f"{self.tool}.{self.part}"

    @property
    def what(self) -> tuple[str, str]:
        """The key by which two effects count as the same."""
        return self.name, str(sorted(self.arguments.items()) if isinstance(self.arguments, dict) else self.arguments)


class ToolReport(msgspec.Struct):
    """The effects of one tool over all rounds."""

    effect: str
    doubled: list[str] = []
    lost: list[str] = []
    unknown: int = 0
    """How often a person was asked whether a call took effect."""


class Report(msgspec.Struct):
    """The outcome of a crash test. `endings`: how many rounds ended how, where that differs from a calm run."""

    points: int
    ending: str
    rounds: int = 0
    kills: int = 0
    tools: dict[str, ToolReport] = {}
    endings: dict[str, int] = {}

    @property
    def is_clean(self) -> bool:
        """Whether every round ended like the undisturbed one, and no effect was doubled or lost that must not be."""
        return not self.endings and not any(
            each.lost or (each.doubled and each.effect not in MAY_REPEAT) for each in self.tools.values()
        )

    def add(
        self, where: str, ending: str, calm: Sequence[Effect], found: Sequence[Effect], asked: Sequence[str]
    ) -> None:
        """Add the result of one round, compared with the undisturbed one."""
        self.rounds += 1
        if ending != self.ending:
            words = f"{ending} instead of {self.ending}"
            self.endings[words] = self.endings.get(words, 0) + 1
        wanted, happened = Counter(each.what for each in calm), Counter(each.what for each in found)
        for what in {**wanted, **happened}:
            row = self._row(what[0])
            if happened[what] > wanted[what]:
                row.doubled.append(where)
            if happened[what] < wanted[what] and ending != "failed":
                row.lost.append(where)
        for name in asked:
            self._row(name).unknown += 1

    def _row(self, name: str) -> ToolReport:
        whole = self.tools.get(name.partition(".")[0])
        kind = "once" if "." in name else whole.effect if whole else UNSAID
        return self.tools.setdefault(name, ToolReport(kind))

    def start(self, kinds: Mapping[str, str]) -> None:
        """List the tools of the agent."""
        self.tools = {name: ToolReport(kind) for name, kind in sorted(kinds.items())}

    def __str__(self) -> str:
        lines = [f"{self.rounds} rounds, {self.kills} kills, over {self.points} durable points"]
        lines += [f"  {count} rounds ended {ending}" for ending, count in self.endings.items()]
        lines.append(f"{'tool':24} {'effect':12} {'doubled':>8} {'lost':>6} {'unknown':>8}")
        for name, row in sorted(self.tools.items()):
            lines.append(f"{name:24} {row.effect:12} {len(row.doubled):8} {len(row.lost):6} {row.unknown:8}")
        for name, row in sorted(self.tools.items()):
            for word, places in (("doubled", row.doubled), ("lost", row.lost)):
                if places and (word == "lost" or row.effect not in MAY_REPEAT):
                    lines.append(
                        f"{name} was {word}: {'; '.join(places[:SHOWN])}{', ...' if len(places) > SHOWN else ''}"
                    )
        unsaid = sorted(name for name, row in self.tools.items() if row.effect == UNSAID and row.doubled)
        if unsaid:
            lines.append(f"Say what these tools do to the world, with @tool(effect=...): {', '.join(unsaid)}")
        return "\n".join(lines)
