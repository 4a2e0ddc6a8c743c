"""`./dev bench all`: the page says what was measured, losses included, and a contestant measures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.dom.minidom import parseString

import pytest

from benchmarks.all.__main__ import QUICK, Sizes, run
from benchmarks.all.contestants import CONTESTANTS, OURS, ROOT, Contestant, ask
from benchmarks.all.figures import Figures, Growth, Listing, Readers, Sse, StepCost, server_versions
from benchmarks.all.page import page, plots, write
from tests.servers.postgres import PostgresServer
from tests.servers.redis_server import RedisServer

FIGURES = Figures(
    "2 cores",
    "2026-11-18",
    {"helix-agents": "0.1.0", "langgraph": "1.2.22"},
    steps=[StepCost(1, None, {OURS: 1.0, "LangGraph": 3.0}), StepCost(3, "SQLite", {OURS: 5.0, "LangGraph": 3.0})],
    growth=[Growth(steps, {OURS: 10.0 * steps}, {OURS: 2.0}, {OURS: 9.0}) for steps in (50, 300)],
    readers=[Readers(count, {"memory": 1e5, "redis": 1e4}) for count in (1, 1000)],
    sse=[Sse(100, 4000.0, 5000.0)],
    sse_delay_ms=(1.5, 9.0),
    listing=[Listing(count, {"no filter": 0.4}) for count in (1000, 1_000_000)],
)


def test_losses_are_bold_and_wins_are_not() -> None:
    text = page(FIGURES)
    assert "| 1 tool, nothing stored | 1.00 | 3.00 |" in text
    assert "| 3 tools, SQLite | **5.00** | 3.00 |" in text
    assert "| 100 | **4,000** | 5,000 |" in text
    assert "langgraph 1.2.22" in text


def test_plots_are_pictures_with_every_series(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    write(FIGURES, tmp_path)
    for name, text in plots(FIGURES).items():
        assert parseString(text).documentElement is not None
        assert (tmp_path / "images" / f"bench-{name}.svg").read_text() == text
        assert f"images/bench-{name}.svg" in (tmp_path / "benchmarks.md").read_text()
    assert ">redis<" in plots(FIGURES)["readers"]
    assert ">5.00<" in plots(FIGURES)["steps"]


def test_a_part_that_fails_does_not_cost_the_others() -> None:
    def broken(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
        raise ConnectionError("no server")

    def working(found: Figures, contestants: Sequence[Contestant], sizes: Sizes) -> None:
        found.listing = FIGURES.listing

    found = run(QUICK, {"sse": broken, "listing": working})
    assert found.failed == ["sse"]
    text = page(found)
    assert "Not measured, since the benchmark failed: sse." in text
    assert "## Listing sessions" in text
    assert "## Server-Sent Events" not in text


async def test_servers_are_named_with_their_versions(
    postgres_server: PostgresServer, redis_server: RedisServer
) -> None:
    found = await server_versions({"postgres": postgres_server.url, "redis": redis_server.url})
    assert {name: version.split(".")[0].isdigit() for name, version in found.items()} in (
        {"Postgres": True, "Valkey": True},
        {"Postgres": True, "Redis": True},
    )


def test_a_contestant_measures_steps_and_resumes(tmp_path: Path) -> None:
    database = str(tmp_path / "x.db")
    first = ask(CONTESTANTS[0], tools=2, steps=3, database=database)
    assert len(first["step_ms"]) == 3
    again = ask(CONTESTANTS[0], tools=2, steps=0, database=database, resume=True)
    assert again["first_call_ms"] > 0
    assert set(again["versions"]) == {"helix-agents"}


@pytest.mark.parametrize(
    ("package", "title", "page_name"),
    [
        ("langgraph", "LangGraph", "coming-from-langgraph"),
        ("openai-agents", "OpenAI Agents SDK", "coming-from-openai-agents"),
        ("pydantic-ai", "pydantic-ai", "coming-from-pydantic-ai"),
    ],
)
def test_pages_about_a_framework_name_the_version_that_is_measured(package: str, title: str, page_name: str) -> None:
    pins = (ROOT / "requirements" / f"peer-{package}.txt").read_text(encoding="utf-8")
    pinned = re.search(rf"^{package}(?:-slim)?==([\d.]+)", pins, re.MULTILINE)
    assert pinned is not None
    assert f"{title} {pinned[1]}" in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    short = ".".join(pinned[1].split(".")[:2])
    assert f" {short}" in (ROOT / "docs" / f"{page_name}.md").read_text(encoding="utf-8").split("\n## ")[0]
