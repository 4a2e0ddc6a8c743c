"""Input by a JSON schema: required members are checked, the rest is left to the owner of the schema."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.tools.schema_input import SchemaInput
from helix_agents.values import InvalidInput

SCHEMA = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_arguments_pass_as_they_are() -> None:
    assert SchemaInput("t", SCHEMA).parse({"a": "not checked", "b": 1}) == {"a": "not checked", "b": 1}
    assert SchemaInput("t", SCHEMA).schema["type"] == "object"


@pytest.mark.parametrize(
    ("arguments", "reason"), [([], "Expected an object, got list"), ({}, "missing required field 'a'")]
)
def test_arguments_without_a_required_member_are_rejected(arguments: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        SchemaInput("t", SCHEMA).parse(arguments)


@pytest.mark.parametrize("schema", [{"type": "array"}, 5, None])
def test_a_schema_of_something_else_is_rejected(schema: Any) -> None:
    with pytest.raises(InvalidArgument, match="Tool 't': the schema"):
        SchemaInput("t", schema)
