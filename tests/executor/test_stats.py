"""Runs that were recovered after a crash are counted; runs that only waited for a worker are not."""

from __future__ import annotations

from helix_agents.agent import Agent
from helix_agents.backends.registry import open_stores
from helix_agents.clock import system_clock
from helix_agents.executor import AgentExecutor, find
from helix_agents.executor.session.claim import NewRun
from helix_agents.executor.session.standing import POISONED_AFTER
from helix_agents.executor.session.take_over import take_over
from helix_agents.executor.workers.stats import recovered_today
from helix_agents.llm import ScriptedLLM

agent = Agent("worker")


async def test_only_runs_whose_process_died_count_as_recovered() -> None:
    async with open_stores("memory:") as stores:
        async with AgentExecutor(stores.state, stores.streams, ScriptedLLM(["Hello."] * 3), agents=[agent]) as executor:
            await executor.submit(agent, "Hi", session_id="submitted")
            for handle in await executor.recover():
                await handle.result()
            assert await recovered_today(stores.streams, system_clock()) == 0

            await stores.state.create_session("dead", agent_type="worker")
            await stores.state.append_messages("dead", [{"role": "user", "content": "Hi"}])
            await stores.state.create_run("dead", "run-1", lease_until=1)
            handles = await executor.recover()
            assert [handle.session_id for handle in handles] == ["dead"]
            assert (await handles[0].result()).status == "completed"
            assert await recovered_today(stores.streams, system_clock()) == 1


async def test_processes_that_die_before_they_start_do_not_poison_a_session() -> None:
    now = [system_clock()]
    async with open_stores("memory:") as stores:
        llm = ScriptedLLM(["Hello."])
        async with AgentExecutor(stores, llm, agents=[agent], clock=lambda: now[0]) as executor:
            await executor.submit(agent, "Hi", session_id="s")
            for number in range(2 * POISONED_AFTER):
                now[0] += 60_000
                found = await find(executor.services, "s")
                assert found.run is not None
                new = NewRun(f"run-dead-{number}")
                await take_over(executor.services, found, new)  # killed right after its claim
            now[0] += 60_000
            (handle,) = await executor.recover()
            assert (await handle.result()).status == "completed"
