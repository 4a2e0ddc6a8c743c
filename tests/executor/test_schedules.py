"""Schedules: when they are due, by the rules of cron and of time zones, and how workers and commands see them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, open_stores
from helix_agents.cli import main
from helix_agents.clock import system_clock
from helix_agents.executor import WorkerPool
from helix_agents.executor.later.timetable import timetable
from helix_agents.server import User, bearer_tokens, create_app

BERLIN = "Europe/Berlin"
AGENT = Agent("main")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def due_times(cron: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    moment, found = ms(start), []
    table = timetable(moment, cron=cron, timezone=zone)
    for _ in range(count):
        after = table.after(moment)
        assert after is not None
        assert after > moment
        moment = after
        found.append(datetime.fromtimestamp(moment / 1000, ZoneInfo(zone)).isoformat())
    return found


def test_a_time_that_the_clock_skips_is_due_right_after_the_gap() -> None:
    assert due_times("30 2 * * *", "2026-03-28T12:00:00+01:00", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_occurs_twice_is_due_once() -> None:
    assert due_times("30 2 * * *", "2026-10-24T12:00:00+02:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    late = due_times("30 2 * * *", "2026-10-25T02:10:00+01:00", 1)
    assert late == ["2026-10-26T02:30:00+01:00"]  # looked for in the second of the two hours


def test_every_half_hour_follows_real_time() -> None:
    found = due_times("*/30 * * * *", "2026-10-25T02:00:00+02:00", 4)
    assert [ms(each) for each in found] == [ms("2026-10-25T00:30:00+00:00") + 1_800_000 * n for n in range(4)]


def test_a_leap_day_is_found_years_ahead() -> None:
    assert due_times("0 0 29 2 *", "2026-01-01T00:00:00+00:00", 1, "UTC") == ["2028-02-29T00:00:00+00:00"]


def test_a_local_time_means_one_moment_or_is_refused() -> None:
    now = ms("2026-01-01T00:00:00+00:00")
    assert timetable(now, at=datetime(2026, 7, 1, 9), timezone=BERLIN).at == ms("2026-07-01T09:00:00+02:00")
    assert timetable(now, at=datetime(2026, 10, 25, 2, 30), timezone=BERLIN).at == ms("2026-10-25T02:30:00+02:00")
    assert timetable(now, at=datetime(2026, 7, 1, 9, tzinfo=UTC), timezone=BERLIN).at == ms("2026-07-01T09:00:00+00:00")
    with pytest.raises(InvalidArgument, match="does not occur in Europe/Berlin"):
        timetable(now, at=datetime(2026, 3, 29, 2, 30), timezone=BERLIN)


def test_every_is_counted_from_the_start_however_late_it_is_asked() -> None:
    table = timetable(1_000, every_seconds=2.5)
    assert [table.after(moment) for moment in (0, 1_000, 3_499, 3_500, 99_999)] == [3_500, 3_500, 3_500, 6_000, 101_000]


async def test_an_idle_pool_starts_a_run_when_it_is_due() -> None:
    done = asyncio.Event()

    def model(request: object) -> str:
        done.set()
        return "Done."

    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(model), agents=[AGENT], lease_seconds=600)
        async with executor, WorkerPool(executor) as pool:
            await pool.run_until_idle()
            schedule = await executor.schedule("main", "Go", at=system_clock() + 50)
            # A pool that slept for half a lease would not wake up within minutes.
            await asyncio.wait_for(done.wait(), 30)
            handle = await executor.get_handle("main", f"{schedule.schedule_id}-{schedule.at}")
            assert handle is not None
            assert (await handle.result()).output == "Done."


async def test_schedules_are_listed_and_canceled_from_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:{tmp_path / 'app.db'}"
    async with open_stores(url) as stores:
        executor = AgentExecutor(stores, ScriptedLLM([]), agents=[AGENT])
        await executor.schedule("main", "Go", cron="0 9 * * *", timezone=BERLIN, key="daily")
        await executor.schedule("main", "Go", every_seconds=90, key="often", user_id="ann")
    assert await asyncio.to_thread(main, ["schedules", "list", "--url", url]) == 0
    often, daily = capsys.readouterr().out.splitlines()
    assert "ann/often  main  every 90 s" in often
    assert "daily  main  '0 9 * * *' in Europe/Berlin" in daily
    assert await asyncio.to_thread(main, ["schedules", "list", "--user", "ann", "--json", "--url", url]) == 0
    assert '"schedule_id":"ann/often"' in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["sessions", "list", "--url", url]) == 0
    assert capsys.readouterr().out == ""
    assert await asyncio.to_thread(main, ["schedules", "cancel", "daily", "--url", url]) == 0
    assert await asyncio.to_thread(main, ["schedules", "cancel", "daily", "--url", url]) == 1
    assert capsys.readouterr().err == "helix: there is no schedule 'daily'.\n"


async def test_clients_of_the_server_do_not_see_the_sessions_of_schedules() -> None:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(["Hi."]), agents=[AGENT])
        await executor.schedule("main", "Go", every_seconds=90, key="often", user_id="ann")
        await executor.run("main", "Hello", session_id="mine", user_id="ann")
        app = create_app(executor, authenticate=bearer_tokens({"t" * 20: User("ann")}), recover=False)
        headers = {"Authorization": f"Bearer {'t' * 20}"}
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            for path in ("/sessions?include=usage", "/sessions?q=helix", "/sessions?q=mine"):
                items = (await client.get(path)).json()["items"]
                assert [item["session_id"] for item in items] == ([] if "helix" in path else ["mine"])
