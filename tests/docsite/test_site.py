"""The site builds without a warning, all its links work, and its reference is complete."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import helix_agents
from docsite.__main__ import DOCS, build
from docsite.navigation import read_navigation
from docsite.reference import reference_pages
from docsite.reference.errors import error_classes
from docsite.reference.options import undocumented
from docsite.reference.python import MODULES, PublicModule, contracts_of, load, public_methods, public_names
from helix_agents import AgentExecutor, RunRecord, ScriptedLLM, SessionState, chunks, create_app
from helix_agents.failures import FailureReason
from helix_agents.inmemory import InMemoryStateStore
from helix_agents.types import RunStatus, SessionStatus, StreamStatus

WRITTEN = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS.parent / "skills").rglob("*.md"))]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference_pages()


@pytest.mark.filterwarnings("ignore:'myst_parser")  # it calls what a later Sphinx will drop
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    assert build(tmp_path) == 0
    navigation = read_navigation((DOCS / "index.md").read_text(encoding="utf-8"))
    for entry in [entry for section in navigation.values() for entry in section]:
        assert (tmp_path / entry.page).with_suffix(".html").exists(), entry.page
    assert "statetracker" in (tmp_path / "searchindex.js").read_text(encoding="utf-8").lower()
    outline = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    for page in re.findall(r"\]\(([^)]+)\)", outline):
        assert (tmp_path / page).exists(), page
    html = "".join(page.read_text(encoding="utf-8") for page in tmp_path.glob("*.html"))
    fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", html)
    assert fetched == []  # it works without a network


@pytest.mark.parametrize("backend", ["in-memory", "sqlite", "postgres", "redis", "cloudflare"])
def test_the_page_of_a_backend_separates_use_tuning_and_internals(backend: str) -> None:
    page = (DOCS / f"{backend}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["Use", "Tuning", "Internals"]


def test_every_public_name_has_a_section(pages: dict[str, str]) -> None:
    for module in MODULES:
        page = pages[f"reference/{module.name}.md"]
        missing = [name for name in public_names(import_module(module.name)) if f"\n## {name}\n" not in page]
        assert missing == [], module.name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.name))
def test_every_public_method_is_explained(pages: dict[str, str], module: PublicModule) -> None:
    page, loaded = pages[f"reference/{module.name}.md"], import_module(module.name)
    for name in public_names(loaded):
        value = load(loaded, name)
        if not inspect.isclass(value):
            continue
        elsewhere = {method for contract in contracts_of(value) for method, _ in public_methods(contract)}
        for method in [method for method, _ in public_methods(value) if method not in elsewhere]:
            section = page.partition(f"\n### {name}.{method}\n")[2].partition("\n##")[0]
            assert re.search(r"```\n\n\S", section), f"{name}.{method}"


INTERNALS = frozenset(
    {
        "MigratedDriver",
        "STATE_STORE",
        "Sessions",
        "SqlMemoryStore",
        "SqlUsageStore",
        "SqliteDriver",
        "expect_same",
        "migrate_postgres",
    }
)
"""Names that a page shows for a special purpose, and explains itself."""


def test_every_name_that_a_page_imports_is_in_the_reference(pages: dict[str, str]) -> None:
    reference = {module.name: set(public_names(import_module(module.name))) for module in MODULES}
    public = set().union(*reference.values()) | {each.__name__ for each in error_classes()} | INTERNALS
    imports = re.compile(r"^[+ ]*from helix_agents[\w.]* import (\([^)]*\)|[^\n#]+)", re.MULTILINE)
    found = {
        name for page in WRITTEN for line in imports.findall(page.read_text()) for name in re.findall(r"\w+", line)
    }
    modules = {module.name.rpartition(".")[2] for module in MODULES}
    assert {"Agent", "last", "CustomEntry", "FileWorkspaceProvider"} < found
    assert sorted(found - public - modules) == []


def test_names_that_exist_only_inside_a_worker_are_explained(pages: dict[str, str]) -> None:
    page = pages["reference/helix_agents.cloudflare.md"]
    for name in ("AgentServer", "CloudflareAgentExecutor", "DOStateStore", "StreamServer", "route"):
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert re.search(rf"```text\n(async def )?{name}\(", section), name
        assert "Exists inside" not in section


def test_every_module_that_the_package_names_has_a_page(pages: dict[str, str]) -> None:
    named = re.findall(r"`(?:helix_agents)?\.(\w+)`", helix_agents.__doc__ or "")
    assert {"types", "telemetry"} < set(named)
    assert [name for name in named if f"reference/helix_agents.{name}.md" not in pages and name != "errors"] == []


@pytest.mark.parametrize("value", [SessionState, RunRecord])
def test_every_field_is_listed_with_its_meaning(pages: dict[str, str], value: type[msgspec.Struct]) -> None:
    section = pages["reference/helix_agents.md"].partition(f"\n## {value.__name__}\n")[2].partition("\n## ")[0]
    meanings = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", section, re.MULTILINE)}
    assert [name for name in value.__struct_fields__ if not meanings.get(name)] == []


def test_every_status_and_failure_reason_has_a_meaning(pages: dict[str, str]) -> None:
    page = pages["reference/statuses.md"]
    for vocabulary in (SessionStatus, RunStatus, StreamStatus, FailureReason):
        assert [
            word for word in get_args(vocabulary) if not re.search(rf"^\| `{word}` \| \S", page, re.MULTILINE)
        ] == []


def test_every_chunk_is_listed(pages: dict[str, str]) -> None:
    kinds = [get_args(get_type_hints(kind)["type"])[0] for kind in get_args(chunks.AnyChunk)]
    assert [kind for kind in kinds if f"\n## {kind}\n" not in pages["reference/chunks.md"]] == []


def test_every_route_is_listed(pages: dict[str, str]) -> None:
    app: Any = create_app(AgentExecutor(InMemoryStateStore(), None, ScriptedLLM([])), allow_unauthenticated=True)
    while not hasattr(app, "routes"):
        app = app.app
    paths = {re.sub(r":\w+}", "}", route.path) for route in app.routes if not route.path.startswith("/inspector/")}
    assert {"/metrics", "/ws/{session_id}"} < paths
    assert [path for path in sorted(paths) if f" {path}\n" not in pages["reference/http.md"]] == []


def test_every_body_that_a_route_returns_is_explained(pages: dict[str, str]) -> None:
    page = pages["reference/http.md"]
    returned = re.findall(r"^Returns .*?\[(\w+)\]\(#\w+\)", page, re.MULTILINE)
    assert {"Started", "Snapshot", "SessionState"} < set(returned)
    assert [name for name in returned if not re.search(rf"^## {name}\n\n\S", page, re.MULTILINE)] == []


def test_every_command_and_argument_is_explained(pages: dict[str, str]) -> None:
    page = pages["reference/command-line.md"]
    assert "## helix sessions interrupt\n" in page
    assert "| `--seed SEED` |" in page.partition("## helix conformance\n")[2].partition("\n## ")[0]
    assert re.findall(r"## helix .+\n\n\n", page) == []
    assert re.findall(r"^\| `.+ \|  \|$", page, re.MULTILINE) == []


def test_every_error_is_explained_with_what_to_do(pages: dict[str, str]) -> None:
    for name in [each.__name__ for each in error_classes()]:
        section = pages["reference/errors.md"].partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert re.match(r"\n\w", section), name
        assert re.search(r"^\| what to do \| \S", section, re.MULTILINE), name


def test_every_option_of_an_address_is_explained() -> None:
    assert undocumented() == []
