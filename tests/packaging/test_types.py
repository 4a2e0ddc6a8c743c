"""What type checkers say about programs of users, who have the wheel and not our settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, run
from tests.servers.node import environment as node_environment
from tests.servers.node import node, packages
from tests.test_docs import program_of

PROGRAM = '''
"""A program with most of what users write: typed state and output, a context, a hook into the stream, an approval."""

from dataclasses import dataclass, field
from typing import assert_type

from helix_agents import Agent, AgentExecutor, AgentResult, ScriptedLLM, SessionState, ToolContext, open_stores, tool


@dataclass
class Notes:
    topics: list[str] = field(default_factory=list)


@dataclass
class Report:
    title: str


@dataclass
class Services:
    region: str


@tool(timeout_seconds=10)
async def search(query: str, ctx: ToolContext[Services, Notes]) -> list[str]:
    """Look something up."""
    ctx.update_state(lambda draft: draft.topics.append(query))
    return [f"{query} in {ctx.deps.region}", *ctx.state.topics]


@tool(requires_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


agent = Agent("researcher", instructions="Find out.", tools=[search, pay], state=Notes, output=Report)


async def main() -> str:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(["Hi."]))
        result = await executor.run(agent, "Go", deps=Services("eu"))
        assert_type(result, AgentResult[Report])
        handle = await executor.execute(agent, "Go", session_id="s", deps=Services("eu"))
        async for chunk in handle.stream():
            match chunk:
                case {"type": "text_delta", "delta": text}:
                    print(text)
        state = await stores.state.load_state("s")
        assert_type(state, SessionState | None)
        page = await stores.state.list_sessions(user_id="ann", limit=10)
        return ", ".join(session.session_id for session in page.items)
'''


@pytest.fixture(scope="module")
def user(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment of a user who serves agents."""
    return Environment(tmp_path_factory.mktemp("user") / "env", wheel, extras="server,openai")


@pytest.fixture(scope="module")
def programs(user: Environment) -> list[Path]:
    """A program of a user, and those of README.md."""
    folder = user.folder.parent / "programs"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "readme.py").write_text(program_of((ROOT / "README.md").read_text(encoding="utf-8")))
    return sorted(folder.iterdir())


def test_mypy_strict_accepts_programs_of_users(user: Environment, programs: list[Path]) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", user.python]
    cache = ["--cache-dir", str(user.folder / "mypy"), "--config-file", "/dev/null"]
    done = run(*command, *cache, *map(str, programs), cwd=user.folder.parent, check=False)
    assert done.returncode == 0, done.stdout


def test_pyright_accepts_programs_of_users(user: Environment, programs: list[Path]) -> None:
    command = [str(node()), str(packages("pyright") / "node_modules" / "pyright" / "index.js"), "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", user.python, *map(str, programs)],
        cwd=user.folder.parent,
        env=node_environment(),
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(programs)
    told = [f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
            for each in report["generalDiagnostics"] if each["severity"] == "error"]  # fmt: skip
    assert told == []
