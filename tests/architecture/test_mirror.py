"""Tests mirror the tree: `tests/executor/test_standing.py` tests `executor/session/standing.py`.

The tests of a package are in the folder of its name; those of a backend without `backends/` before it, those of the
modules at the root in `tests/core`. A module without async code is tested by a file of its name, or of the name of its
subpackage. A module with async code works with stores, servers or models: it is tested through public APIs, by the kit
and by the files that are named after what users do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

SHARED = {"sql_shared": ("sqlite", "postgres")}
"""Packages without their own folder, and the folders that test them."""

TESTED_ELSEWHERE = {
    # Statements and in-memory structures: the kit tests them on every backend.
    "backends/inmemory/sessions": "src/helix_agents/conformance/state",
    "backends/inmemory/storable": "src/helix_agents/conformance/state/odd_values.py",
    "backends/redis/program/vocabulary": "tests/redis/test_compile.py",
    "backends/sql_shared/state/branch_statements": "src/helix_agents/conformance/state/s17_branches.py",
    "backends/sql_shared/state/guarded_batch": "tests/sqlite/test_history.py",
    "backends/sql_shared/state/orphans": "tests/operations/test_verify.py",
    "backends/sql_shared/state/row_statements": "tests/sqlite/test_planned_commit.py",
    "backends/sql_shared/streams/planned_append": "tests/sqlite/test_planned_commit.py",
    "backends/postgres/driver_errors": "tests/postgres/test_faults.py",
    # What only a Worker can run.
    "backends/cloudflare/sockets": "tests/cloudflare/test_bridge.py",
    "cloudflare": "tests/cloudflare/test_imports.py",
    "runtimes/cloudflare/upkeep": "tests/cloudflare/test_agent_server.py",
    # Commands: run as an operator runs them.
    "cli/completion": "tests/cli/test_main.py",
    "cli/crashtest": "tests/crashtest/test_rounds.py",
    "cli/project_files": "tests/cli/test_init.py",
    "cli/serving": "tests/cli/test_serve.py",
    # Data that the executor's modules share.
    "executor/run_context": "tests/executor/test_loop.py",
    "executor/services": "tests/executor/test_construction.py",
    "types": "tests/core/test_lifecycle.py",
    # Two modules that are tested together.
    "llm/contract": "tests/llm/test_scripted.py",
    "llm/turns": "tests/llm/test_anthropic.py",
    "server/connections": "tests/server/test_hostile.py",
    "state/dict_draft": "tests/state/test_draft.py",
    "state/list_draft": "tests/state/test_draft.py",
    "telemetry/meters": "tests/telemetry/test_metrics.py",
}
"""Modules that no test file is named after, and where to look instead."""


def test_a_module_without_async_code_has_a_test_of_its_name() -> None:
    missing = sorted(set(unnamed_modules(ROOT)) - TESTED_ELSEWHERE.keys())
    assert not missing, f"Add a test file of the same name, or an entry to TESTED_ELSEWHERE: {missing}"


def test_every_exception_is_needed_and_leads_somewhere() -> None:
    assert sorted(TESTED_ELSEWHERE.keys() - set(unnamed_modules(ROOT))) == []
    assert [path for path in TESTED_ELSEWHERE.values() if not (ROOT / path).exists()] == []


def test_a_module_without_a_test_is_found(tmp_path: Path) -> None:
    files = {
        "src/helix_agents/ids.py": "def f():\n    return 1",
        "src/helix_agents/clock.py": "def f():\n    return 1",
        "src/helix_agents/backends/redis/keys.py": "def f():\n    return 1",
        "src/helix_agents/executor/run/waits.py": "async def f():\n    return 1",
        "src/helix_agents/executor/run/names.py": "NAME = 1",
        "src/helix_agents/operations/transfer/records.py": "def f():\n    return 1",
        "tests/core/test_clock.py": "",
        "tests/executor/test_ids.py": "",
        "tests/operations/test_transfer.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert sorted(unnamed_modules(tmp_path)) == ["backends/redis/keys", "ids"]


def unnamed_modules(root: Path) -> Iterator[str]:
    """Yield the modules without async code that no test file is named after."""
    source = root / "src" / "helix_agents"
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source).with_suffix("")
        if module.parts[0] == "conformance" or module.name == "__init__" or not _is_pure(path):
            continue
        if not any((root / "tests" / test).exists() for test in _test_files(module)):
            yield module.as_posix()


def _is_pure(path: Path) -> bool:
    """Return whether a module has functions that do something, and none of them is async."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    does_something = any(len(node.body) > 1 or not isinstance(node.body[0], ast.Expr) for node in functions)
    return does_something and not any(isinstance(node, ast.AsyncFunctionDef) for node in nodes)


def _test_files(module: Path) -> Iterator[Path]:
    """Yield the places, relative to `tests`, where the test of a module may be."""
    package = [part for part in module.parts[:-1] if part != "backends"]
    if not module.parts[:-1]:
        package = ["core"]
    elif not package:
        package = ["backends"]
    for top in SHARED.get(package[0], (package[0],)):
        for depth in range(1, len(package) + 1):
            for name in (module.name, *package[1:]):
                yield Path(top, *package[1:depth], f"test_{name}.py")
