"""The page that maps the names of the source documents: every name of ours on it exists."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from docsite.__main__ import DOCS
from docsite.reference import reference_pages
from helix_agents import open_stores

PAGE = (DOCS / "source-documents.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\|(?P<theirs>.+?)(?<!\\)\|(?P<ours>.+?)(?<!\\)\|(?:.*\|)?$", re.MULTILINE)
FROM_OUTSIDE = {
    "ctx",
    "env",
    "redis",
    "database",
    "stores",
    "llm",
    "fn",
    "async",
    "for",
    "in",
    "changes",
    "name",
    "MULTI",
    "WATCH",
    "logging",
}
"""Words of examples, and of the world around: Python, a Worker's environment."""


def words_of_the_reference() -> set[str]:
    """Return every identifier on the pages that are made from the code."""
    return set(re.findall(r"[A-Za-z_]\w+", "\n".join(reference_pages().values())))


def unknown_names(page: str, known: set[str]) -> list[str]:
    """Return the names in code on the right-hand side of the tables that are not known."""
    spans = [span for row in ROW.finditer(page) for span in re.findall(r"`([^`]+)`", row["ours"])]
    names = {name for span in spans for name in re.findall(r"[A-Za-z_]\w+", re.sub(r'"[^"]*"', "", span))}
    return sorted(names - known - FROM_OUTSIDE)


@pytest.fixture(scope="module")
def names_part() -> str:
    part = PAGE.partition("\n## Names\n")[2].partition("\n### Tables and keys\n")[0]
    assert len(ROW.findall(part)) > 80
    return part


def test_every_name_of_ours_exists(names_part: str) -> None:
    assert unknown_names(names_part, words_of_the_reference()) == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    page = "| theirs | ours |\n|---|---|\n| `getX` | `get_x(session_id)` |\n"
    assert unknown_names(page, {"session_id"}) == ["get_x"]


async def test_every_table_of_ours_exists(tmp_path: Path) -> None:
    async with open_stores(f"sqlite:{tmp_path / 'x.db'}") as stores:
        await stores.state.session_exists("a")
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
    part = PAGE.partition("\n### Tables and keys\n")[2].partition("\n## ")[0]
    named = {name for row in ROW.finditer(part) for name in re.findall(r"__agents_\w+", row["ours"])}
    same = re.findall(
        r"__agents_\w+", next(row["theirs"] for row in ROW.finditer(part) if "the same names" in row["ours"])
    )
    assert len(same) >= 6
    assert sorted({*named, *same} - tables) == []
