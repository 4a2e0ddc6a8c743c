"""Connections that break, servers that die, tokens that expire: nothing is shown twice and nothing is lost."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.inspector.conftest import Visit
from tests.server.running import Running, execute, result, running
from tests.servers.proxy import Proxy

# Long: a browser, one person, many looks. `test_page`, `test_looks` and `test_hostile` are the short form.
pytestmark = pytest.mark.soak


def words(count: int) -> str:
    return " ".join(f"word{number}" for number in range(count))


async def test_a_broken_connection_is_said_and_the_stream_goes_on_where_it_stopped(
    visit: Visit, server: Running, admin: httpx.AsyncClient, sid: str
) -> None:
    async with Proxy(int(server.address.rpartition(":")[2])) as proxy:
        await execute(admin, "talk 200", sid)
        page = await visit(f"/#/s/{sid}", address=f"http://127.0.0.1:{proxy.port}")
        await expect(page.get_by_text("word3 ")).to_be_visible()
        proxy.cut(refuse=True)
        await expect(page.get_by_text("The connection is lost.")).to_be_visible()
        await expect(page.get_by_text("word3 ")).to_be_visible()
        proxy.heal()
        await page.get_by_role("button", name="Try now").click()
        await expect(page.get_by_text("The connection is lost.")).to_be_hidden()
        proxy.cut()
        await expect(page.get_by_text(words(200), exact=True)).to_have_count(1)
        await page.goto(f"/#/s/{sid}/chunks")
        sequences = await page.locator(".ch .row > :first-child").all_inner_texts()
        assert sequences
        assert len(sequences) == len(set(sequences))


async def test_a_server_that_dies_is_taken_over_and_both_are_shown(visit: Visit, tmp_path: Path, sid: str) -> None:
    url = f"sqlite:{tmp_path / 'helix.db'}"
    with running(url, tmp_path, 0.02) as first:
        async with Proxy(int(first.address.rpartition(":")[2])) as proxy:
            async with first.client("admin-token") as client:
                await execute(client, "talk 300", sid)
            page = await visit(f"/#/s/{sid}/timeline", address=f"http://127.0.0.1:{proxy.port}")
            await expect(page.get_by_text("word5 ")).to_be_visible()
            first.stop(signal.SIGKILL)
            await expect(page.get_by_text("The connection is lost.")).to_be_visible()
            with running(url, tmp_path, 0.001) as second:
                proxy.target_port = int(second.address.rpartition(":")[2])
                await expect(page.locator(".cut")).to_contain_text(re.compile(r"stopped.*took over after", re.S))
                await expect(page.get_by_text(words(300), exact=True)).to_have_count(1)
                await expect(page.locator(".tl .gap").first).to_be_visible()
                await expect(page.locator(".tl .lane .bar.worker")).to_have_count(2)
                await expect(page.locator(".head .pill")).to_have_text("Completed")


async def test_a_token_that_is_no_longer_accepted_is_asked_for_again(page: Page, visit: Visit) -> None:
    await expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
    await page.evaluate("sessionStorage.setItem('helix-token', 'gone')")
    await page.goto("/#/waiting")
    await expect(page.get_by_role("dialog")).to_contain_text("The server no longer accepts the token.")
    await page.get_by_label("Token").fill("admin-token")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Waiting for people")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_a_list_whose_server_is_away_says_so_and_comes_back(visit: Visit, server: Running) -> None:
    async with Proxy(int(server.address.rpartition(":")[2])) as proxy:
        page = await visit("/", address=f"http://127.0.0.1:{proxy.port}")
        await expect(page.locator("dl.vitals")).to_contain_text("sqlite")
        proxy.cut(refuse=True)
        await expect(page.locator("dl.vitals")).to_contain_text("no answer")
        await page.goto("/#/waiting")
        await expect(page.get_by_text("The server does not respond.")).to_be_visible()
        proxy.heal()
        await page.get_by_role("button", name="Try now").click()
        await expect(page.get_by_text("The server does not respond.")).to_be_hidden()


async def test_another_user_sees_none_of_it(visit: Visit, admin: httpx.AsyncClient, sid: str) -> None:
    await execute(admin, "hello", sid)
    await result(admin, sid)
    page = await visit(f"/#/s/{sid}", token="alice-token")
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()
