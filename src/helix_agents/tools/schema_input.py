"""Tool input described by an external JSON schema: the model sees the schema, its owner checks the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codec import Json, ensure_json
from ..errors import InvalidArgument
from ..values import InvalidInput


class SchemaInput:
    """The arguments of a tool as a JSON schema describes them; references inside it are kept."""

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise InvalidArgument(f"Tool {name!r}: the schema of its input must describe an object.")
        self.schema: dict[str, Any] = {**schema, "type": "object"}
        ensure_json(self.schema)

    def parse(self, arguments: Json) -> dict[str, Any]:
        """Return the arguments as they are. Raises `InvalidInput` if they are not an object or one is missing."""
        if not isinstance(arguments, dict):
            raise InvalidInput(f"Expected an object, got {type(arguments).__name__}")
        missing = [name for name in self.schema.get("required", ()) if name not in arguments]
        if missing:
            raise InvalidInput(f"Object missing required field {missing[0]!r}")
        return dict(arguments)
