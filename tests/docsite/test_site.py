"""The site builds without a warning, leads everywhere, and its reference is complete."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from docsite.__main__ import DOCS, build
from docsite.navigation import read_navigation
from docsite.reference import reference_pages
from docsite.reference.errors import error_classes
from docsite.reference.options import undocumented
from docsite.reference.python import MODULES, field_notes, public_methods, public_names
from helix_agents import RunRecord, SessionState, StateStore, StreamManager


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


def test_every_public_name_has_a_section(pages: dict[str, str]) -> None:
    for module in MODULES:
        page = pages[f"reference/{module.name}.md"]
        missing = [name for name in public_names(import_module(module.name)) if f"\n## {name}\n" not in page]
        assert missing == [], module.name


@pytest.mark.parametrize("contract", [StateStore, StreamManager])
def test_every_method_of_a_contract_is_explained(pages: dict[str, str], contract: type) -> None:
    page = pages["reference/helix_agents.md"]
    for name, _ in public_methods(contract):
        section = page.partition(f"\n### {contract.__name__}.{name}\n")[2].partition("\n###")[0]
        assert re.search(r"```\n\n\w", section), name


@pytest.mark.parametrize("value", [SessionState, RunRecord])
def test_every_field_is_listed(pages: dict[str, str], value: type[msgspec.Struct]) -> None:
    page = pages["reference/helix_agents.md"]
    assert [name for name in value.__struct_fields__ if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("value", [SessionState, RunRecord])
def test_every_field_has_a_meaning(value: type[msgspec.Struct]) -> None:
    page, notes = (DOCS / "data-model.md").read_text(encoding="utf-8"), field_notes(value)
    assert [name for name in value.__struct_fields__ if f"`{name}`" not in page and name not in notes] == []


def test_every_error_is_explained(pages: dict[str, str]) -> None:
    page = pages["reference/errors.md"]
    assert [each.__name__ for each in error_classes() if f"\n## {each.__name__}\n" not in page] == []


def test_every_option_of_an_address_is_explained() -> None:
    assert undocumented() == []
