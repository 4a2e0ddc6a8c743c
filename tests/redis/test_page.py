"""The blocks of docs/redis.md run, on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from tests.test_docs import ROOT, run_page

PAGE = ROOT / "docs" / "redis.md"
CLIENT = 'Redis(host="localhost")'


async def test_the_blocks_of_the_page_run(redis_url: str, tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert CLIENT in page
    runnable = "\n".join(line for line in page.splitlines() if not line.startswith("<!-- not run"))
    here = f'Redis(host="{urlsplit(redis_url).hostname}", port={urlsplit(redis_url).port})'
    done = await asyncio.to_thread(run_page, "docs/redis.md", runnable.replace(CLIENT, here), tmp_path)
    assert done.returncode == 0, done.stderr
