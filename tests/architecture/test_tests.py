"""Rules for the tests themselves: each one can fail."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[1]
KIT = TESTS.parent / "src" / "helix_agents" / "conformance"

JUDGES = {"raises", "fail", "warns", "run_check"}
"""Calls that fail a test by themselves: those of pytest and of the kit."""

JUDGED_ELSEWHERE = {
    "test_the_server_does_what_the_document_says",  # schemathesis compares the response with the document
    "test_again_and_again",  # a check of the kit raises
    "test_a_database_of_an_earlier_schema_keeps_its_history",  # a method of the old schema compares
    "test_a_file_of_an_earlier_schema_keeps_its_history",
    "test_files_parse",  # a parser raises
    "test_python_compiles_also_where_it_cannot_run",  # the compiler raises
}

SET_UP = {"execute", "result", "running", "streaming", "read_stream", "opened", "serve", "prepare"}
"""Functions that check their own preconditions. A test that only calls these checks nothing itself."""


class Function(NamedTuple):
    """What this rule needs to know about one function."""

    path: Path
    name: str
    calls: frozenset[str]
    asserts: bool


def functions_of(path: Path) -> list[Function]:
    """Return every function and method of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        _function(path, node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _function(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    asserts, names = False, set[str]()
    for node in ast.walk(function):
        match node:
            case ast.Assert():
                asserts = True
            case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
                asserts = True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name, value=ast.Name(id="pytest" | "self"))):
                names.add(name)
    return Function(path, function.name, frozenset(names), asserts or bool(names & JUDGES))


def find_silent_tests(paths: list[Path]) -> list[str]:
    """Return the tests that neither assert nor call a function of the tests or the kit that does."""
    functions = [function for path in paths for function in functions_of(path)]
    judging = {function.name for function in functions if function.asserts} - SET_UP
    grown = True
    while grown:
        more = {function.name for function in functions if function.calls & judging} - judging - SET_UP
        judging |= more
        grown = bool(more)
    return [
        f"{f.path.name}::{f.name}"
        for f in functions
        if f.name.startswith("test_") and f.name not in judging | JUDGED_ELSEWHERE
    ]


def test_every_test_asserts_something() -> None:
    assert find_silent_tests([*TESTS.rglob("*.py"), *KIT.rglob("*.py")]) == []


def test_a_test_that_asserts_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "test_page.py"
    page.write_text(
        "def check(x): assert x\n"
        "def test_by_a_helper(): check(1)\n"
        "def test_of_nothing():\n    for x in [1, 2]:\n        if x == 2:\n            break\n"
    )
    assert find_silent_tests([page]) == ["test_page.py::test_of_nothing"]


def test_a_test_that_waits_for_nothing_ends_with_the_stack_of_its_wait(tmp_path: Path) -> None:
    page = tmp_path / "test_page.py"
    page.write_text("import threading\ndef test_hangs(): threading.Event().wait()\n")
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "tests.time_limit", str(page)]
    environment = os.environ | {"HELIX_TEST_SECONDS": "0.2", "PYTHONPATH": str(TESTS.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, cwd=tmp_path)
    assert done.returncode != 0
    assert "in test_hangs" in done.stderr
