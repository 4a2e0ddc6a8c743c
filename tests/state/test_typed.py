"""Typed views over the JSON state."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.state import StateTracker, initial_state, view


class Model(pydantic.BaseModel):
    topic: str = ""
    notes: list[str] = []


@dataclass
class Data:
    topic: str = ""
    notes: list[str] = field(default_factory=list)


class Struct(msgspec.Struct):
    topic: str = ""
    notes: list[str] = []


class Typed(TypedDict):
    topic: str
    notes: list[str]


@pytest.mark.parametrize("schema", [Model, Data, Struct])
def test_a_schema_with_defaults_gives_the_initial_state(schema: Any) -> None:
    assert initial_state(schema) == {"topic": "", "notes": []}
    assert initial_state(schema(topic="x")) == {"topic": "x", "notes": []}


@pytest.mark.parametrize("schema", [Model, Data, Struct])
def test_a_view_is_an_independent_instance(schema: Any) -> None:
    tracker = StateTracker(initial_state(schema))
    tracker.update(lambda d: d["notes"].append("n"))
    seen = view(tracker.state, schema)
    seen.notes.append("only in the view")
    assert (seen.notes[0], tracker.state["notes"]) == ("n", ["n"])


def test_a_typed_dict_is_a_view_too() -> None:
    assert view(StateTracker({"topic": "x", "notes": []}).state, Typed)["topic"] == "x"
    assert initial_state(Typed(topic="", notes=[])) == {"topic": "", "notes": []}


@pytest.mark.parametrize("schema", [Model, Data, Struct, Typed])
def test_a_state_that_does_not_fit_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidArgument, match=schema.__name__):
        view({"topic": 5, "notes": []}, schema)


def test_fields_without_a_default_are_asked_for() -> None:
    class Strict(pydantic.BaseModel):
        topic: str

    with pytest.raises(InvalidArgument, match="without a default"):
        initial_state(Strict)
    with pytest.raises(InvalidArgument, match="not int"):
        initial_state(5)


def test_pydantic_is_never_imported_by_us() -> None:
    code = "import sys, helix_agents.state; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
