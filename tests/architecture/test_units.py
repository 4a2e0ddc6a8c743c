"""No unit of JavaScript, Lua or SQL is too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.units import MAX_UNIT_LINES, unit_breaches

ROOT = Path(__file__).parents[2]
LONG = "\tnext();\n" * (MAX_UNIT_LINES - 1)
CLOSURE = f"export function view() {{\n\tconst draw = () => {{\n{LONG.replace(chr(9), chr(9) * 2)}\t}};\n}}\n"
METHOD = f"class View {{\n\t#a = 1;\n\n\tdraw() {{\n{LONG.replace(chr(9), chr(9) * 2)}\t}}\n}}\n"


@pytest.mark.parametrize("folder", ["src", "examples"])
def test_the_tree_keeps_the_rule(folder: str) -> None:
    assert unit_breaches(ROOT / folder) == []


@pytest.mark.parametrize("suffix", ["js", "lua", "sql"])
def test_there_is_something_to_measure(suffix: str) -> None:
    assert list((ROOT / "src").rglob(f"*.{suffix}"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("view.js", f"function go() {{\n{LONG}}}\n", "function go() { has 81 lines"),
        ("view.js", CLOSURE, "view() { has 83 lines"),
        ("view.js", METHOD, "draw() { has 81 lines"),
        ("view.js", METHOD.replace("\t", "  "), "draw() { has 81 lines"),
        ("a.lua", f"-- Go.\nlocal function go()\n{LONG}end\n\nlocal x = 1\n", "local function go() has 81 lines"),
        ("a.lua", f"while true do\n{LONG}end\n", "while true do has 81 lines"),
        ("a.sql", f"CREATE FUNCTION go() AS $a$\nBEGIN\n{LONG}END $a$;\n", "FUNCTION go() AS $a$ has 82 lines"),
        ("a.sql", f"-- name: go\nSELECT 1,\n{LONG.replace(';', ',')}2;\n", "SELECT 1, has 81 lines"),
    ],
    ids=["function", "closure", "method", "spaces", "lua-function", "lua-loop", "sql-function", "sql-statement"],
)
def test_a_breach_is_noticed(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    assert words in "\n".join(unit_breaches(tmp_path))


def test_a_long_class_of_short_methods_is_in_order(tmp_path: Path) -> None:
    methods = "".join(f"\tmethod{number}() {{\n\t\tnext();\n\t}}\n\n" for number in range(50))
    (tmp_path / "view.js").write_text(f"class View {{\n{methods}}}\n")
    assert unit_breaches(tmp_path) == []
