"""How long the units of the other languages in the tree are: functions of JavaScript, Lua and SQL, statements of SQL.

A unit is found by indentation: a statement at the outermost level, or a member of a class, with all lines that are
indented further. A closure counts with the function around it. A unit of SQL ends with the semicolon of its statement;
the body of a function belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

MAX_UNIT_LINES = 80
LUA_ENDS = ("end", "}", ")", "else")
DOLLARS = re.compile(r"\$\w*\$")
CLASS = re.compile(r"(export (default )?)?class ")


class Unit(NamedTuple):
    """A piece of code that is read as a whole."""

    name: str
    lines: int


def unit_breaches(root: Path) -> list[str]:
    """Return units that are too long."""
    return [
        f"{path.relative_to(root)}: {unit.name} has {unit.lines} lines, at most {MAX_UNIT_LINES}"
        for path in sorted(each for each in root.rglob("*") if each.suffix in READERS)
        for unit in READERS[path.suffix](path.read_text())
        if unit.lines > MAX_UNIT_LINES
    ]


def javascript_units(text: str) -> Iterator[Unit]:
    """Yield the statements of a module; for a class, its members."""
    for start, lines in _blocks(text.split("\n"), ""):
        if CLASS.match(start):
            indent = re.match(r"\s*", lines[1])
            assert indent is not None
            yield from (Unit(member.strip(), len(body)) for member, body in _blocks(lines[1:-1], indent.group()))
        else:
            yield Unit(start, len(lines))


def lua_units(text: str) -> Iterator[Unit]:
    """Yield the statements of a file: functions, loops, tables."""
    for start, lines in _blocks([_without_comment(line, "--") for line in text.split("\n")], "", LUA_ENDS):
        yield Unit(start, len(lines))


def sql_units(text: str) -> Iterator[Unit]:
    """Yield the statements of a file; what is between two `$name$` is one body."""
    lines: list[str] = []
    body: str | None = None
    for line in text.split("\n"):
        code = _without_comment(line, "--")
        if not code.strip():
            continue
        lines.append(code)
        for mark in DOLLARS.findall(code):
            body = mark if body is None else None if mark == body else body
        if body is None and code.rstrip().endswith(";"):
            yield Unit(lines[0], len(lines))
            lines = []
    if lines:
        yield Unit(lines[0], len(lines))


def _without_comment(line: str, mark: str) -> str:
    return "" if line.lstrip().startswith(mark) else line


READERS: dict[str, Callable[[str], Iterator[Unit]]] = {
    ".js": javascript_units,
    ".mjs": javascript_units,
    ".lua": lua_units,
    ".sql": sql_units,
}


def _blocks(lines: list[str], indent: str, ends: tuple[str, ...] = ("}", ")", "]")) -> Iterator[tuple[str, list[str]]]:
    """Yield blocks of lines that start at this indentation and end with the line that closes them."""
    block: list[str] = []
    for line in lines:
        starts_here = line.startswith(indent) and line[len(indent) :][:1] not in ("", " ", "\t")
        is_end = starts_here and line[len(indent) :].startswith(ends)
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
