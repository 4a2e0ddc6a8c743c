"""Worker pools: what is submitted is executed once, however workers start, stop or die."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, Stores, open_stores
from helix_agents.executor import Stepper, WorkerPool
from helix_agents.executor.workers.pool import list_workers
from helix_agents.executor.workers.wakeup import listen, wake_workers
from tests.executor.pool_agents import STEPS, agent, executor, script


async def test_a_pool_executes_what_is_submitted_and_says_who_did_it() -> None:
    async with open_stores("memory:") as stores, executor(stores) as ours:
        handles = [await ours.submit(agent, "Go", session_id=f"s{n}") for n in range(12)]
        async with WorkerPool(ours, at_once=4, name="w1") as pool:
            assert [(await handle.result()).output for handle in handles] == ["Done."] * 12
            late = await ours.submit(agent, "Go", session_id="late")
            assert (await late.result()).output == "Done."
            await pool.run_until_idle()
            assert pool.running == 0
            workers = await list_workers(stores.streams, ours.services.clock())
            assert [(each.name, each.at_once) for each in workers] == [("w1", 4)]
        (run,) = await stores.state.list_runs("late")
        assert (run.status, run.worker) == ("completed", "w1")


async def test_a_pool_that_stops_hands_its_runs_over_and_another_goes_on_in_the_same_record() -> None:
    async with open_stores("memory:") as stores, executor(stores) as first, executor(stores) as second:
        handle = await first.submit(agent, "Go", session_id="s")
        async with WorkerPool(first, name="first"):
            async for chunk in handle.stream():
                if chunk["type"] == "step_committed":
                    break
        run = await stores.state.get_current_run("s")
        assert run is not None
        assert (run.status, run.lease_until) == ("running", 0)
        assert 1 <= run.step_count < STEPS + 1
        async with WorkerPool(second, name="second") as pool:
            await pool.run_until_idle()
        (run,) = await stores.state.list_runs("s")
        assert (run.status, run.step_count, run.worker) == ("completed", STEPS + 1, "second")
        state = await stores.state.load_state("s")
        assert state is not None
        assert state.custom_state == {"done": [0, 1, 2]}


async def test_a_pool_that_is_woken_at_the_moment_it_stops_does_stop() -> None:
    async with open_stores("memory:") as stores, executor(stores) as ours:
        for turns in range(10):  # of the event loop, between being woken and being stopped
            async with asyncio.timeout(20), WorkerPool(ours) as pool:
                await pool.run_until_idle()
                waking = asyncio.create_task(pool.run_until_idle())
                for _ in range(turns):
                    await asyncio.sleep(0)
            waking.cancel()


async def test_a_pool_keeps_to_its_limits_of_agents_and_users() -> None:
    async with open_stores("memory:") as stores, executor(stores) as ours:
        for number in range(6):
            await ours.submit(agent, "Go", session_id=f"s{number}", user_id=f"u{number % 2}")
        async with WorkerPool(ours, at_once=6, per_user=1) as pool:
            done = asyncio.create_task(pool.run_until_idle())
            seen = 0
            while not done.done():
                seen = max(seen, pool.running)
                await asyncio.sleep(0)
            assert seen == 2


async def test_what_a_pool_may_not_take_does_not_hide_what_waits_behind_it() -> None:
    async with open_stores("memory:") as stores, executor(stores) as ours:
        for number in range(210):
            await Stepper(ours).begin(agent, "Go", session_id=f"engine-{number}")
        for number in range(210):
            await ours.submit(agent, "Go", session_id=f"busy-{number}", user_id="busy")
        handle = await ours.submit(agent, "Go", session_id="s", user_id="other")
        async with WorkerPool(ours, per_user=1):
            assert (await asyncio.wait_for(handle.result(), 60)).output == "Done."
        untouched = await stores.state.load_state("engine-0")
        assert untouched is not None
        assert untouched.step_count == 0


async def test_a_worker_leaves_runs_of_agents_that_it_does_not_know(caplog: pytest.LogCaptureFixture) -> None:
    async with open_stores("memory:") as stores:
        stranger = Agent("stranger")
        front = AgentExecutor(stores.state, stores.streams, ScriptedLLM(["Hi."]))
        await front.submit(stranger, "Go", session_id="s")
        ours = AgentExecutor(stores.state, stores.streams, script(), agents=[agent], lease_seconds=0.1)
        async with WorkerPool(ours) as pool:
            await pool.run_until_idle()
            async with asyncio.timeout(60):
                while "stranger" not in caplog.text:  # noqa: ASYNC110  # a log record is no event
                    await asyncio.sleep(0.01)
        assert caplog.text.count("Runs of agent stranger are due") == 1
        run = await stores.state.get_current_run("s")
        assert run is not None
        assert (run.status, run.lease_until) == ("running", 0)
        async with WorkerPool(front) as pool:
            await pool.run_until_idle()
        assert (await stores.state.load_state("s")).status == "completed"  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize("options", [{"at_once": 0}, {"at_once": True}, {"per_user": -1}, {"per_agent": "2"}])
async def test_odd_limits_of_a_pool_are_refused(options: dict) -> None:
    async with open_stores("memory:") as stores:
        with pytest.raises(InvalidArgument):
            WorkerPool(executor(stores), **options)


async def _worker(url: str, name: str) -> asyncio.subprocess.Process:
    words = ("worker", "tests.executor.pool_agents:executor", "--url", url, "--at-once", "4", "--name", name)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "helix_agents.cli", *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert name.encode() in await asyncio.wait_for(process.stdout.readline(), 60)
    return process


async def _expect_all_done(stores: Stores, names: list[str]) -> None:
    for name in names:
        state = await stores.state.load_state(name)
        assert state is not None
        assert (state.status, state.custom_state) == ("completed", {"done": [0, 1, 2]})
        roles = [message["role"] for message in (await stores.state.get_messages(name)).items]
        assert roles == ["user", *["assistant", "tool"] * STEPS, "assistant"]


APP = """
from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores

greeter = Agent("greeter")


def executor(stores: Stores) -> AgentExecutor:
    return AgentExecutor(stores, ScriptedLLM(["Hello!"]), agents=[greeter])
"""


async def _expect_helix_worker_to_work(url: str, folder: Path) -> None:
    """Start it as a newcomer would, from the folder of an application."""
    (folder / "my_app.py").write_text(APP)
    words = [str(Path(sys.executable).parent / "helix"), "worker", "my_app:executor", "--url", url, "--name", "w"]
    process = await asyncio.create_subprocess_exec(
        *words, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        said = await asyncio.wait_for(process.stdout.readline(), 120)
        assert said == b"Worker w executes greeter, 8 at once. Stop with Ctrl-C.\n"
        async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM([])) as front:
            handle = await front.submit(Agent("greeter"), "Say hello")
            assert (await asyncio.wait_for(handle.result(), 60)).output == "Hello!"
            (run,) = await stores.state.list_runs(handle.session_id)
            assert run.worker == "w"
        process.send_signal(signal.SIGTERM)
        log = (await asyncio.wait_for(process.stderr.read(), 60)).decode()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert f"INFO Run {run.run_id} of session {handle.session_id} stopped: completed after 1 steps." in log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_helix_worker_on_sqlite(tmp_path: Path) -> None:
    await _expect_helix_worker_to_work(f"sqlite:{tmp_path / 'a.db'}", tmp_path)


async def test_helix_worker_on_postgres(tmp_path: Path, postgres_url: str) -> None:
    await _expect_helix_worker_to_work(postgres_url, tmp_path)


async def test_helix_worker_on_redis(tmp_path: Path, redis_url: str) -> None:
    await _expect_helix_worker_to_work(redis_url, tmp_path)


async def test_helix_worker_on_a_redis_cluster(tmp_path: Path, redis_cluster_url: str) -> None:
    await _expect_helix_worker_to_work(redis_cluster_url, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_process_that_dies_or_freezes_costs_its_lease_and_nothing_else(
    tmp_path: Path, end: signal.Signals
) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with open_stores(url) as stores, executor(stores) as front:
        first, second = await _worker(url, "first"), await _worker(url, "second")
        names = [f"s{n}" for n in range(10)]
        try:
            handles = [await front.submit(agent, "Go", session_id=name) for name in names]
            await handles[0].stream().__anext__()
            first.send_signal(end)
            for handle in handles:
                assert (await asyncio.wait_for(handle.result(), 60)).status == "completed"
            await _expect_all_done(stores, names)
            if end == signal.SIGSTOP:
                first.send_signal(signal.SIGCONT)
                first.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(first.wait(), 30) == 0
                await _expect_all_done(stores, names)
            second.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(second.wait(), 30) == 0
        finally:
            for process in (first, second):
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def test_who_begins_to_listen_looks_for_what_came_before() -> None:
    async with open_stores("memory:") as stores:
        await wake_workers(stores.streams)
        woken = asyncio.Event()
        listening = asyncio.create_task(listen(stores.streams, woken.set))
        await asyncio.wait_for(woken.wait(), 30)
        woken.clear()
        await wake_workers(stores.streams)
        await asyncio.wait_for(woken.wait(), 30)
        listening.cancel()
