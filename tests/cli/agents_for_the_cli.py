"""An executor that the tests name on the command line: `tests.cli.agents_for_the_cli:make_executor`."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from helix_agents import Agent, AgentExecutor, ScriptedLLM, Stores, tool
from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.backends.inmemory.stream_manager import InMemoryStreamManager
from helix_agents.llm.scripted import Call, Script
from helix_agents.server import User


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish something; a person must agree."""
    return f"published {title}"


@tool(execute="client")
def ask(question: str) -> str:
    """Ask the user."""
    raise NotImplementedError


publisher = Agent("publisher", tools=[publish, ask])


def make_executor(stores: Stores) -> AgentExecutor:
    """Return an executor on the stores of the command line."""
    script: Script = [[Call("publish", {"title": "Ants"}), Call("ask", {"question": "Why?"})], "All done."]
    return AgentExecutor(
        stores.state, stores.streams, ScriptedLLM(script), usage_store=stores.usage, agents=[publisher]
    )


executor = AgentExecutor(
    InMemoryStateStore(), InMemoryStreamManager(), ScriptedLLM(lambda request: "Hello."), agents=[publisher]
)
not_an_executor = 5


def by_header(connection: HTTPConnection) -> User | None:
    """Identify a user by a header, as behind a proxy that has authenticated the request."""
    name = connection.headers.get("x-test-user")
    return None if name is None else User(name)
