"""No unit of JavaScript is longer than a reader can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.units import MAX_UNIT_LINES, unit_breaches

ROOT = Path(__file__).parents[2]
LONG = "\tnext();\n" * (MAX_UNIT_LINES - 1)
CLOSURE = f"export function view() {{\n\tconst draw = () => {{\n{LONG.replace(chr(9), chr(9) * 2)}\t}};\n}}\n"
METHOD = f"class View {{\n\t#a = 1;\n\n\tdraw() {{\n{LONG.replace(chr(9), chr(9) * 2)}\t}}\n}}\n"


@pytest.mark.parametrize("folder", ["src", "examples"])
def test_javascript_keeps_the_rule(folder: str) -> None:
    assert unit_breaches(ROOT / folder) == []


def test_there_is_javascript() -> None:
    assert list((ROOT / "src").rglob("*.js"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"function go() {{\n{LONG}}}\n", "function go() { has 81 lines"),
        (CLOSURE, "view() { has 83 lines"),
        (METHOD, "draw() { has 81 lines"),
        (METHOD.replace("\t", "  "), "draw() { has 81 lines"),
    ],
    ids=["function", "closure", "method", "spaces"],
)
def test_a_breach_is_noticed(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "view.js").write_text(text)
    assert words in "\n".join(unit_breaches(tmp_path))


def test_a_long_class_of_short_methods_is_in_order(tmp_path: Path) -> None:
    methods = "".join(f"\tmethod{number}() {{\n\t\tnext();\n\t}}\n\n" for number in range(50))
    (tmp_path / "view.js").write_text(f"class View {{\n{methods}}}\n")
    assert unit_breaches(tmp_path) == []
