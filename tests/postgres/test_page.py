"""The blocks of docs/postgres.md run, on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.test_docs import ROOT, run_page

PAGE = ROOT / "docs" / "postgres.md"
ADDRESS = "postgresql://localhost/app"


async def test_the_blocks_of_the_page_run(postgres_url: str, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert ADDRESS in page
    runnable = "\n".join(line for line in page.splitlines() if not line.startswith("<!-- not run"))
    done = await asyncio.to_thread(run_page, "docs/postgres.md", runnable.replace(ADDRESS, postgres_url), tmp_path)
    assert done.returncode == 0, done.stderr
