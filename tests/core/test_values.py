"""Types: outputs have the agent's declared type in every process; parameters are described and parsed leniently."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Any, assert_type

import msgspec
import pydantic
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, RunHandle, ScriptedLLM, open_stores
from helix_agents.llm import Call


@dataclasses.dataclass
class Plain:
    title: str
    pages: int = 1


class Struct(msgspec.Struct):
    title: str
    pages: int = 1


class Model(pydantic.BaseModel):
    title: str
    pages: int = 1


@pytest.mark.parametrize("kind", [Plain, Struct, Model])
async def test_the_output_is_an_instance_here_elsewhere_and_later(kind: Any, tmp_path: Path) -> None:
    agent = Agent("writer", output=kind)
    script = [[Call("finish", {"title": "Ants", "pages": "3"})]]
    url = f"sqlite:{tmp_path / 'helix.db'}"
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM(script)) as executor:
        result = await executor.run(agent, "Write", session_id="s")
        assert result.output == kind(title="Ants", pages=3)
    async with open_stores(url) as stores, AgentExecutor(stores, ScriptedLLM([])) as executor:
        handle = await executor.get_handle(agent, "s")
        assert handle is not None
        assert (await handle.result()).output == kind(title="Ants", pages=3)
        session = await stores.state.load_state("s")
        assert session is not None
        assert session.output == {"title": "Ants", "pages": 3}


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Renamed(pydantic.BaseModel):
    title: str = pydantic.Field(alias="theTitle", default="none")


class Tagged(msgspec.Struct, tag=True, rename="camel"):
    page_count: int


class OtherTagged(msgspec.Struct, tag=True):
    page_count: int


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        (Renamed, {"theTitle": "Ants"}, Renamed(theTitle="Ants")),
        (Tagged | OtherTagged, {"output": {"type": "Tagged", "pageCount": 3}}, Tagged(3)),
        (dict[Color, int], {"output": {"red": 3}}, {Color.RED: 3}),
        (set[int], {"output": [2, 1]}, {1, 2}),
    ],
)
async def test_an_output_keeps_its_names_tags_and_keys(kind: Any, arguments: Any, expected: Any) -> None:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM([[Call("finish", arguments)]]))
        assert (await executor.run(Agent("writer", output=kind), "Write")).output == expected


async def test_types_are_known_to_type_checkers() -> None:
    async with open_stores("memory:") as stores:
        executor = AgentExecutor(stores, ScriptedLLM(lambda request: [Call("finish", {"title": "Ants"})]))
        agent = Agent("writer", output=Plain)
        assert_type(agent, Agent[Plain])
        assert assert_type((await executor.run(agent, "Write")).output, Plain).title == "Ants"
        handle = await executor.submit(agent, "Write")
        assert_type(handle, RunHandle[Plain])
        await executor.recover()
        assert assert_type((await handle.result()).output, Plain).title == "Ants"


async def test_a_check_of_the_output_sees_what_the_caller_gets() -> None:
    agent, seen = Agent("writer", output=Plain), []

    @agent.check_output
    def look(output: Plain) -> None:
        seen.append(output)

    async with open_stores("memory:") as stores:
        result = await AgentExecutor(stores, ScriptedLLM([[Call("finish", {"title": "Ants"})]])).run(agent, "Write")
        assert seen == [result.output] == [Plain("Ants")]


async def test_an_output_type_that_has_changed_since_is_told_by_name() -> None:
    script = [[Call("finish", {"title": "Ants"})]]
    async with open_stores("memory:") as stores, AgentExecutor(stores, ScriptedLLM(script)) as executor:
        await executor.run(Agent("writer", output=Plain), "Write", session_id="s")
        Longer = dataclasses.make_dataclass("Longer", [("title", str), ("author", str)])
        handle = await executor.get_handle(Agent("writer", output=Longer), "s")
        assert handle is not None
        with pytest.raises(InvalidArgument, match=r"'writer' is not a Longer.*author"):
            await handle.result()


async def test_outputs_of_plain_types_are_plain() -> None:
    script = [[Call("finish", {"output": ["1", 2]})]]
    async with open_stores("memory:") as stores, AgentExecutor(stores, ScriptedLLM(script)) as executor:
        assert (await executor.run(Agent("counter", output=list[int]), "Count")).output == [1, 2]
