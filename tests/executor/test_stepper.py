"""Steps in one process, which caches what it has just written."""

from __future__ import annotations

from helix_agents import Agent, AgentExecutor, ScriptedLLM, tool
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.conformance.executor.harness import Clockwork
from helix_agents.executor import Stepper
from helix_agents.llm import Call


@tool
async def work() -> str:
    """Work."""
    return "done"


async def test_a_machine_that_was_suspended_between_two_steps_opens_the_stream_again() -> None:
    clock = Clockwork()  # unlike the clock of the event loop, it passes while the machine is suspended
    state, streams = InMemoryStateStore(clock=clock), InMemoryStreamManager(ttl=60, clock=clock)
    streams.gather_seconds = 0.001
    agent, script = Agent("worker", tools=[work]), ScriptedLLM([[Call("work")], [Call("work")], "Done."])
    async with AgentExecutor(state, streams, script, clock=clock) as executor:
        stepper = Stepper(executor)
        ticket = await stepper.begin(agent, "Go", session_id="s")
        while not ticket.done:
            ticket = await stepper.step(agent, ticket)
            clock.pass_seconds(3600)
    assert (ticket.status, ticket.error, ticket.steps) == ("completed", None, 3)
