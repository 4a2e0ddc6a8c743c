"""Types: outputs are what the agent says, in whatever process; parameters are described, and read leniently."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Annotated, Any, Literal, assert_type

import msgspec
import pydantic
import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, RunHandle, ScriptedLLM, open_stores, tool
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


def test_the_docstring_describes_the_parameters() -> None:
    @tool
    def paint(what: str, color: Color, often: Annotated[int, "How often."] = 1) -> str:
        """Paint something.

        Args:
            what (str): The thing to paint,
                with all its parts.
            color: The color.
            often: Not this, the annotation is closer.

        Returns:
            What was done.
        """
        return what

    properties = paint.spec.input_schema["properties"]
    assert properties["what"]["description"] == "The thing to paint, with all its parts."
    assert properties["often"]["description"] == "How often."
    assert "The color." in str(properties["color"])
    assert paint.description == "Paint something.\n\nReturns:\n    What was done."


def test_numbers_and_choices_are_taken_for_what_they_mean() -> None:
    @tool
    def paint(
        often: int, color: Color, size: Literal["S", "L"] = "S", more: list[Color] | None = None, name: int | str = ""
    ) -> str:
        return ""

    parsed = paint.input.parse({"often": "3", "color": "RED", "size": "l", "more": ["Green"], "name": "7"})
    assert parsed == {"often": 3, "color": Color.RED, "size": "L", "more": [Color.GREEN], "name": "7"}


@dataclasses.dataclass
class Brush:
    color: Color
    size: Literal["S", "L"] = "S"
    hairs: int = 100


async def test_choices_are_understood_and_listed_at_any_depth_and_in_outputs() -> None:
    @tool
    def paint(brushes: list[Brush], spare: dict[str, Brush | None]) -> str:
        return ""

    parsed = paint.input.parse({"brushes": [{"color": "RED", "size": "l"}], "spare": {"x": {"color": "Green"}}})
    assert parsed == {"brushes": [Brush(Color.RED, "L")], "spare": {"x": Brush(Color.GREEN)}}
    with pytest.raises(InvalidArgument, match="allowed: 'red', 'green'"):
        paint.input.parse({"brushes": [{"color": "blue"}], "spare": {}})
    with pytest.raises(InvalidArgument, match="allowed: 'S', 'L'"):
        paint.input.parse({"brushes": [{"color": "red", "hairs": "7"}], "spare": {"x": {"color": "red", "size": "M"}}})
    llm = ScriptedLLM([[Call("finish", {"color": "blue"})], [Call("finish", {"color": "RED"})]])
    async with open_stores("memory:") as stores:
        result = await AgentExecutor(stores, llm).run(Agent("painter", output=Brush), "Paint", session_id="s")
        assert result.output == Brush(Color.RED)
        assert "allowed: 'red', 'green'" in (await stores.state.get_messages("s")).items[2]["content"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"often": "three", "color": "red"}, "Expected `int`"),
        ({"often": "3.5", "color": "red"}, "Expected `int`"),
        ({"often": True, "color": "red"}, "Expected `int`"),
        ({"often": 1, "color": "blue"}, "allowed: 'red', 'green'"),
        ({"often": 1, "color": "red", "size": "XL"}, "allowed: 'S', 'L'"),
    ],
)
def test_what_would_lose_something_is_refused_and_the_error_says_what_is_allowed(
    arguments: dict[str, Any], told: str
) -> None:
    @tool
    def paint(often: int, color: Color, size: Literal["S", "L"] = "S") -> str:
        return ""

    with pytest.raises(InvalidArgument, match=told):
        paint.input.parse(arguments)
