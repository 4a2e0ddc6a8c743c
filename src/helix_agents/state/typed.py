"""Typed views: the JSON state as a pydantic model, a dataclass, a TypedDict or a msgspec Struct, and back.

The state itself stays plain JSON; a view is a checked copy of it. Pydantic is recognised by its methods and never
imported.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ..errors import InvalidArgument
from .freeze import freeze
from .frozen import thaw

T = TypeVar("T")


def view(state: dict[str, Any], schema: type[T]) -> T:
    """A checked, independent copy of the state as `schema`; raises `InvalidArgument` where it does not fit."""
    plain = thaw(state)
    validate = getattr(schema, "model_validate", None)
    try:
        return validate(plain) if validate is not None else msgspec.convert(plain, schema)
    except (ValueError, msgspec.ValidationError) as error:
        raise InvalidArgument(f"The state is not a valid {getattr(schema, '__name__', schema)}: {error}") from error


def initial_state(source: Any) -> dict[str, Any]:
    """A plain state from a dict, from an instance of a schema, or from a schema whose fields have defaults."""
    if isinstance(source, type):
        source = _defaults(source)
    dump = getattr(source, "model_dump", None)
    plain = dump(mode="json") if dump is not None else source
    if not isinstance(plain, dict):
        plain = msgspec.to_builtins(plain)
    if not isinstance(plain, dict):
        raise InvalidArgument(
            f"The state of a session must be a dict or a schema with fields, not {type(source).__name__}."
        )
    result: dict[str, Any] = thaw(freeze(plain))
    return result


def _defaults(schema: type) -> Any:
    try:
        return schema()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{schema.__name__} has fields without a default: give a dict or an instance.") from error
