"""How long the units of the other languages in the tree are: functions and methods of JavaScript.

Indentation tells: a unit is a statement at the outermost level, or a member of a class, with all lines that are
indented further. A closure counts with the function around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAX_UNIT_LINES = 80
CLASS = re.compile(r"(export (default )?)?class ")


class Unit(NamedTuple):
    """A piece of code that is read as a whole."""

    name: str
    lines: int


def unit_breaches(root: Path) -> list[str]:
    """Units that are too long."""
    return [
        f"{path.relative_to(root)}: {unit.name} has {unit.lines} lines, at most {MAX_UNIT_LINES}"
        for path in sorted([*root.rglob("*.js"), *root.rglob("*.mjs")])
        for unit in javascript_units(path.read_text())
        if unit.lines > MAX_UNIT_LINES
    ]


def javascript_units(text: str) -> Iterator[Unit]:
    """The statements of a module; for a class, its members."""
    for start, lines in _blocks(text.split("\n"), ""):
        if CLASS.match(start):
            indent = re.match(r"\s*", lines[1])
            assert indent is not None
            yield from (Unit(member.strip(), len(body)) for member, body in _blocks(lines[1:-1], indent.group()))
        else:
            yield Unit(start, len(lines))


def _blocks(lines: list[str], indent: str) -> Iterator[tuple[str, list[str]]]:
    """Runs of lines that begin at this indentation and end with the line that closes them."""
    block: list[str] = []
    for line in lines:
        starts_here = line.startswith(indent) and line[len(indent) :][:1] not in ("", " ", "\t")
        is_end = starts_here and line[len(indent)] in "})]"
        if starts_here and not is_end and block:
            yield block[0], block
            block = []
        if line.strip() and not line.strip().startswith("//"):
            block.append(line)
        if is_end and block:
            yield block[0], block
            block = []
    if block:
        yield block[0], block
