"""Tool schemas from signatures, and what happens to arguments that do not fit."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.signature import InvalidInput
from helix_agents.tools import ToolContext, tool


@dataclass
class Place:
    city: str
    zip: str = ""


class Filter(TypedDict, total=False):
    limit: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


class Inner(pydantic.BaseModel):
    n: int = pydantic.Field(ge=0)


class Order(pydantic.BaseModel):
    items: list[Inner]


def test_the_schema_is_that_of_the_signature() -> None:
    @tool
    def search(query: Annotated[str, "what to look for"], ctx: ToolContext, limit: int = 10) -> str:
        """Find things."""
        return ""

    assert search.spec.name == "search"
    assert search.spec.description == "Find things."
    assert search.spec.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "limit": {"type": "integer", "default": 10},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_arguments_become_the_annotated_types() -> None:
    @tool
    def book(
        place: Place,
        filter: Filter,
        colour: Colour,
        at: Point,
        order: Order,
        kind: Literal["a", "b"] = "a",
        tags: list[str] = [],  # noqa: B006  # the default must be copied
        more: dict[str, Place] | None = None,
    ) -> None: ...

    parsed = book.input.parse(
        {
            "place": {"city": "Ulm"},
            "filter": {"limit": 3},
            "colour": "blue",
            "at": {"x": 1},
            "order": {"items": [{"n": 2}]},
            "more": {"home": {"city": "Bonn"}},
        }
    )
    assert parsed["place"] == Place("Ulm")
    assert parsed["filter"] == {"limit": 3}
    assert parsed["colour"] is Colour.BLUE
    assert parsed["at"] == Point(1.0)
    assert parsed["order"] == Order(items=[Inner(n=2)])
    assert parsed["kind"] == "a"
    assert parsed["tags"] == []
    assert parsed["more"] == {"home": Place("Bonn")}
    assert parsed["tags"] is not book.input.parse({**_BOOKING})["tags"]


_BOOKING = {
    "place": {"city": "Ulm"},
    "filter": {},
    "colour": "red",
    "at": {"x": 1},
    "order": {"items": []},
}


def test_references_of_nested_models_resolve_from_the_top() -> None:
    @tool
    def buy(order: Order, place: Place) -> None: ...

    schema = buy.spec.input_schema
    text = str(schema)
    for name in [part.split("'")[0] for part in text.split("#/$defs/")[1:]]:
        assert name in schema["$defs"]
    assert text.count("$defs': {") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "query"),
        ({"query": 1}, "str"),
        ({"query": "x", "extra": 1}, "extra"),
        ({"query": "x", "order": {"items": [{"n": -1}]}}, "greater than or equal to 0"),
        ("x", "object"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_a_reason(arguments: Any, words: str) -> None:
    @tool
    def search(query: str, order: Order | None = None) -> None: ...

    with pytest.raises(InvalidInput, match=words):
        search.input.parse(arguments)


def test_a_tool_is_still_a_function() -> None:
    @tool(name="other", description="Says hello.", timeout_seconds=3)
    def hello(name: str) -> str:
        return f"Hello {name}"

    assert hello("Ann") == "Hello Ann"
    assert (hello.name, hello.description, hello.timeout_seconds) == ("other", "Says hello.", 3)


def test_parameters_that_a_model_cannot_fill_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="'rest'"):

        @tool
        def search(*rest: str) -> None: ...
