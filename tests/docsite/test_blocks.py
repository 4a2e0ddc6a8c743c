"""Blocks of the pages that are not Python: commands exist with their options, files parse, scripts are valid, SQL runs.

Python blocks run in `tests/test_docs.py`; the few that cannot run there at least compile here.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import configparser
import json
import re
import runpy
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from docsite.reference.command_line import all_commands
from helix_agents import open_stores
from helix_agents.cli.main import _parser
from tests.servers.node import environment, packages, piped
from tests.test_docs import PAGES, ROOT, ROOT_PAGES

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$", re.MULTILINE | re.DOTALL
)
INLINE = re.compile(r"(?<!`)`((?:helix|\./dev) [^`\n]+)`(?!`)")
OTHER_PROGRAMS = {".", "python3", "cd", "curl", "docker", "export", "npx", "pip", "python", "uv", ".venv/bin/python"}
"""What a block of `sh` may call besides `helix` and `./dev`."""
PARSE_SCRIPTS = """
import ts from "typescript";
const target = ts.ScriptTarget.ESNext, module = ts.ModuleKind.ESNext, jsx = ts.JsxEmit.Preserve;
const options = { fileName: "block.jsx", reportDiagnostics: true, compilerOptions: { target, module, jsx } };
const said = (each) => ts.flattenDiagnosticMessageText(each.messageText, " ");
const told = JSON.parse(process.argv[2]).flatMap(([name, code]) =>
  ts.transpileModule(code, options).diagnostics.map((each) => `${name}: ${said(each)}`));
console.log(JSON.stringify(told));
"""


class Block(NamedTuple):
    """A block of code of a page."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def name(self) -> str:
        """Return where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return all blocks in some languages."""
    pages = [*PAGES, *ROOT_PAGES[1:], *sorted((ROOT / "examples").rglob("*.md"))]
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["language"], found["code"])
        for page in dict.fromkeys(pages)
        for text in [page.read_text(encoding="utf-8")]
        for found in FENCE.finditer(text)
        if found["language"] in languages
    ]


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    checked = {"python", "diff", "sh", "toml", "json", "yaml", "ini", "nginx", "sql", "js", "jsx", "html"}
    shown_only = {"text", "console", "mermaid"}
    pages = [*PAGES, *ROOT_PAGES[1:]]
    kinds = {found["language"] for page in pages for found in FENCE.finditer(page.read_text(encoding="utf-8"))}
    assert kinds <= checked | shown_only


# -- Commands


def commands_in(script: str) -> list[list[str]]:
    """Return the commands of a shell script as words, without comments and variables in front."""
    joined = script.replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in joined.splitlines()]
    found: list[list[str]] = []
    for words in lines:
        command: list[str] = []
        for word in [*words, "&&"]:
            if word in ("&&", "|", ">", ";"):
                found += [command] if command else []
                command = []
            elif command or not re.match(r"\w+=", word):
                command.append(word)
    return found


HELIX = all_commands()
DEV = runpy.run_path(str(ROOT / "dev"), run_name="dev")
DEV_COMMANDS = set(re.findall(r"^  \./dev (\w+)", DEV["__doc__"], re.MULTILINE))


def problem_with(command: list[str]) -> str | None:
    """Return what is wrong with a command, or None."""
    match command:
        case ["helix", *arguments]:
            return problem_with_helix(arguments)
        case ["./dev", name, *arguments]:
            if name.lstrip("-") != "help" and name not in DEV_COMMANDS:
                return f"./dev has no command {name}"
            if name == "bench" and arguments and arguments[0] not in DEV["benchmarks"]() and arguments[0] != "NAME":
                return f"there is no benchmark {arguments[0]}"
            return None
        case [program, *_] if program in OTHER_PROGRAMS:
            files = [word for word in command[1:] if re.match(r"(?:examples|deploy)/", word)]
            missing = [word for word in files if not (ROOT / word).exists()]
            return f"there is no file {missing[0]}" if missing else None
    return f"nobody knows {command[0]}"


def problem_with_helix(arguments: list[str]) -> str | None:
    """Return which command or option does not exist. Arguments may be left out, as in a sentence."""
    if arguments[:1] in (["--help"], ["--version"], ["COMMAND"]):
        return None
    name = next((name for name in (" ".join(arguments[:2]), arguments[0]) if name in HELIX), None)
    if name is None:
        return (
            None
            if any(each.startswith(f"{arguments[0]} ") for each in HELIX) and len(arguments) == 1
            else (f"there is no helix {' '.join(arguments[:2])}")
        )
    known = {option for action in HELIX[name]._actions for option in action.option_strings}
    unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in known]
    return f"helix {name} has no {unknown[0]}" if unknown else None


@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.name)
def test_the_commands_of_a_block_exist(block: Block) -> None:
    assert [problem for command in commands_in(block.code) if (problem := problem_with(command))] == []


@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.name)
def test_whole_helix_commands_are_accepted(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(parser: argparse.ArgumentParser, message: str) -> None:
        raise AssertionError(message)

    monkeypatch.setattr(argparse.ArgumentParser, "error", fail)
    for command in commands_in(block.code):
        if command[:2] == ["helix", "conformance"]:
            assert HELIX["conformance"].parse_args(command[2:])
        elif command[0] == "helix":
            assert _parser().parse_args(command[1:])


def test_the_commands_in_sentences_exist() -> None:
    told = []
    for page in [*PAGES, *ROOT_PAGES[1:]]:
        for span in INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            words = span.replace("...", "").replace("[", "").replace("]", "").split()
            problem = problem_with(words)
            told += [f"{page.name}: `{span}`: {problem}"] if problem else []
    assert told == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("helix servve", "there is no helix servve"),
        ("A=1 helix serve app:x --prot 1", "helix serve has no --prot"),
        ("./dev tset", "no command tset"),
        ("./dev bench nothing", "no benchmark nothing"),
        ("docker compose -f deploy/nothing.yaml up", "no file deploy/nothing.yaml"),
        ("helix demo && rm x", "nobody knows rm"),
    ],
)
def test_a_wrong_command_is_noticed(script: str, words: str) -> None:
    assert words in str([problem_with(command) for command in commands_in(script)])


# -- Files


def parse_ini(text: str) -> list[str]:
    """Return the sections of an INI file; a systemd unit is one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser.sections()


def parse_nginx(text: str) -> bool:
    """Return whether blocks are closed and statements end."""
    plain = re.sub(r"#.*", "", text)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return plain.count("{") == plain.count("}") and all(line.endswith(("{", "}", ";")) for line in lines)


PARSERS: dict[str, Callable[[str], Any]] = {
    "toml": tomllib.loads,
    "json": json.loads,
    "yaml": yaml.safe_load,
    "ini": parse_ini,
    "nginx": parse_nginx,
}


@pytest.mark.parametrize("block", blocks(*PARSERS), ids=lambda block: block.name)
def test_files_parse(block: Block) -> None:
    assert PARSERS[block.language](block.code)


def test_the_kubernetes_deployment_is_whole() -> None:
    (found,) = [
        document
        for block in blocks("yaml")
        for document in yaml.safe_load_all(block.code)
        if isinstance(document, dict) and document.get("kind") == "Deployment"
    ]
    pod = found["spec"]["template"]
    assert found["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert problem_with(["helix", *container["args"]]) is None
    ports = {port["containerPort"] for port in container["ports"]}
    probes = [container[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {next(iter(probe.values()))["port"] for probe in probes} <= ports
    assert "livenessProbe" in container
    assert "httpGet" not in container["livenessProbe"]  # a database that is away must not restart pods


def test_the_programs_of_the_systemd_unit_exist() -> None:
    starts = [line for block in blocks("ini") for line in block.code.splitlines() if line.startswith("ExecStart=")]
    assert starts
    for line in starts:
        program, *arguments = shlex.split(line.removeprefix("ExecStart="))
        assert problem_with([program.rpartition("/")[2], *arguments]) is None


# -- Programs


def test_scripts_for_browsers_parse() -> None:
    scripts = [(block.name, block.code) for block in blocks("js", "jsx")]
    for block in blocks("html"):
        scripts += [(block.name, code) for code in re.findall(r"<script[^>]*>(.*?)</script>", block.code, re.DOTALL)]
    assert len(scripts) >= 4
    assert told_by_typescript(scripts) == []


def test_a_wrong_script_is_noticed() -> None:
    assert told_by_typescript([("page:1", "const a = ;")]) == ["page:1: Expression expected."]


def told_by_typescript(scripts: list[tuple[str, str]]) -> list[str]:
    """Return what TypeScript's parser says about scripts."""
    done = subprocess.run(
        piped(json.dumps(scripts)),
        input=PARSE_SCRIPTS,
        cwd=packages("types"),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    told: list[str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("block", blocks("sql"), ids=lambda block: block.name)
async def test_sql_runs_on_a_file_of_ours(block: Block, tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'x.db'}") as stores:
        await stores.state.create_session("my-session", agent_type="a", custom_state={"a": 1})
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        assert database.execute(block.code).fetchall()


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.name)
def test_python_compiles_also_where_it_cannot_run(block: Block) -> None:
    text = block.code
    if "return await streams" in text:  # the inside of a function
        text = "async def body():\n" + "".join(f"    {line}\n" for line in text.splitlines())
    assert compile(text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST).body


USES_STORES = re.compile(r"^(?:async )?def test_.*\(stores\)", re.MULTILINE)
COLLECTED = [block for block in blocks("python") if USES_STORES.search(block.code)]


@pytest.mark.parametrize("block", COLLECTED, ids=lambda block: block.name)
def test_what_pytest_collects_passes(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(block.code)
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_fixtures_of_the_page_are_run() -> None:
    assert [block.page.name for block in COLLECTED] == ["testing.md"]


# -- The old side of the pages for those who come from elsewhere


def before(code: str) -> str:
    """Return a diff as it was before."""
    return "\n".join("" if line.startswith(("+", "---")) else line[1:] for line in code.splitlines()) + "\n"


@pytest.mark.parametrize("block", blocks("diff"), ids=lambda block: block.name)
def test_the_old_side_of_a_diff_is_a_whole_program(block: Block) -> None:
    tree = ast.parse(before(block.code))
    given = {"model", "print", "str", "__name__"} | {name for node in ast.walk(tree) for name in names_bound_by(node)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert sorted(used - given - set(dir(builtins))) == []
    assert any(isinstance(node, ast.ImportFrom) and "helix" not in (node.module or "") for node in tree.body)


def names_bound_by(node: ast.AST) -> list[str]:
    """Return the names that a node defines."""
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(each.asname or each.name).partition(".")[0] for each in names]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
    return []
