"""Tool schemas from signatures, and what happens to arguments that do not fit."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from helix_agents.agent import Agent
from helix_agents.errors import InvalidArgument
from helix_agents.tools import ToolContext, tool
from helix_agents.values import InvalidInput


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


# -- what is rejected, and what is accepted


@pytest.mark.parametrize(
    "make",
    [
        lambda: tool(name="bad name!")(plain),
        lambda: tool(name="")(plain),
        lambda: tool(name="n" * 65)(plain),
        lambda: tool(lambda: 1),
        lambda: tool(timeout_seconds=-1)(plain),
        lambda: tool(timeout_seconds=float("nan"))(plain),
        lambda: tool(deadline_seconds=0)(plain),
        lambda: tool(requires_approval="yes")(plain),  # type: ignore[call-overload]
        lambda: tool(Shop.sell),
        lambda: tool(unknown),
        lambda: Agent("has a space").as_tool(),
        lambda: Agent("main", state=plain),
    ],
)
def test_tools_that_no_model_could_call_are_refused_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument):
        make()


def plain() -> int:
    """Return nothing special."""
    return 1


def unknown(thing: Nowhere) -> int:  # type: ignore[name-defined]  # noqa: F821  # the point of the test
    """Annotated with a name that there is not."""
    return 1


class Shop:
    """Has a method."""

    def sell(self, what: str) -> str:
        """Sell something."""
        return f"sold {what}"


def test_a_bound_method_is_a_tool() -> None:
    assert list(tool(Shop().sell).input.schema["properties"]) == ["what"]


@pytest.mark.parametrize("hint", [ToolContext | None, None | ToolContext, Annotated[ToolContext, "mine"]])
def test_the_context_may_be_optional(hint: Any) -> None:
    def work(text: str, ctx: Any = None) -> str:
        return text

    work.__annotations__["ctx"] = hint
    assert list(tool(work).input.schema["properties"]) == ["text"]


def test_annotations_may_mean_classes_of_the_function_around() -> None:
    @dataclass
    class Local:
        a: int

    @tool
    def first(x: Local) -> int:
        """Annotated with a local class."""
        return x.a

    @tool(name="second")
    def other(x: Local) -> int:
        """Return the same."""
        return x.a

    assert first.input.parse({"x": {"a": 1}})["x"] == Local(1)
    assert other.input.parse({"x": {"a": 2}})["x"] == Local(2)


def test_fields_of_pydantic_describe_and_check() -> None:
    @tool
    def work(
        a: Annotated[int, pydantic.Field(description="how many", ge=1)],
        b: list[Annotated[int, pydantic.Field(le=3)]],
        c: int = pydantic.Field(default=7, ge=5),
    ) -> int:
        """Work."""
        return a

    schema = work.input.schema["properties"]
    assert (schema["a"]["description"], schema["a"]["minimum"], schema["b"]["items"]["maximum"]) == ("how many", 1, 3)
    assert work.input.schema["required"] == ["a", "b"]
    assert work.input.parse({"a": 1, "b": [3]}) == {"a": 1, "b": [3], "c": 7}
    wrongs: list[dict[str, Any]] = [{"a": 0, "b": []}, {"a": 1, "b": [4]}, {"a": 1, "b": [], "c": 4}, {"b": []}]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            work.input.parse(wrong)


def test_inner_models_of_one_name_are_told_apart() -> None:
    def outer(kind: type) -> Any:
        return pydantic.create_model(f"Outer{kind.__name__}", inner=(pydantic.create_model("In", v=(kind, ...)), ...))

    def work(a: Any, b: Any, c: Any) -> int:
        """Work."""
        return 1

    number, text = outer(int), outer(str)
    work.__annotations__.update(a=number, b=text, c=number)
    schema = tool(work).input.schema

    def inner_type(name: str) -> str:
        node = schema["properties"][name]
        for key in ("inner", "v"):
            while "$ref" in node:
                node = schema["$defs"][node["$ref"].removeprefix("#/$defs/")]
            node = node["properties"][key]
        return str(node["type"])

    assert [inner_type(name) for name in "abc"] == ["integer", "string", "integer"]
