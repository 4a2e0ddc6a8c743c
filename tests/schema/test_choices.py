"""Choices: enums and literals are understood leniently, and errors list what is allowed."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Literal

import pytest

from helix_agents import Agent, AgentExecutor, InvalidArgument, ScriptedLLM, open_stores, tool
from helix_agents.llm import Call


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


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
