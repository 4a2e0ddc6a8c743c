"""From a Python signature to a tool's input: a JSON schema for the model, and a check of what the model sends.

msgspec does the work for plain types, dataclasses, TypedDicts, enums and its own structs; pydantic models are known by
their methods, so pydantic is never imported. Nothing here knows agents or runs.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from .codec import MAX_DEPTH, Json, ensure_json, escape_pointer
from .errors import InvalidArgument, NotSerializable

_ATOMS = (str, int, float, bool, type(None))


class InvalidInput(InvalidArgument):
    """Arguments that do not fit the signature; the sentence is for the model to read."""


class InputModel:
    """The parameters of one function, as the model must fill them in."""

    def __init__(self, name: str, fields: list[tuple[str, Any, Any]]) -> None:
        self._names = [field[0] for field in fields]
        self._struct = msgspec.defstruct(name, [_field(*field) for field in fields], forbid_unknown_fields=True)
        self.schema = json_schema(self._struct)
        self.schema.pop("title", None)

    def parse(self, arguments: Json) -> dict[str, Any]:
        """The arguments as the function wants them. Raises `InvalidInput`."""
        filled = convert(arguments, self._struct)
        return {name: getattr(filled, name) for name in self._names}


def input_model(function: Callable[..., Any], *, skip: frozenset[str]) -> InputModel:
    """The input of a function, without the parameters in `skip`."""
    hints = get_type_hints(function, include_extras=True)
    fields = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in skip:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidArgument(f"Tool {_name(function)!r}: parameter {parameter.name!r} must be an ordinary one.")
        fields.append((parameter.name, hints.get(parameter.name, Any), parameter.default))
    return InputModel(_name(function), fields)


def find_context(function: Callable[..., Any], context_type: type) -> str | None:
    """The name of the parameter that is annotated with the context type."""
    for name, hint in get_type_hints(function).items():
        origin = get_origin(hint) or hint
        if name != "return" and isinstance(origin, type) and issubclass(origin, context_type):
            return name
    return None


def convert(value: Json, kind: Any) -> Any:
    """A JSON value as `kind`. Raises `InvalidInput` with a sentence that says what is wrong and where."""
    try:
        if hasattr(kind, "model_validate"):
            return kind.model_validate(value)
        return msgspec.convert(value, kind, dec_hook=_decode_foreign)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InvalidInput(str(error)) from error


def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON schema of a type, self-contained: `$defs` inside, references local."""
    if hasattr(kind, "model_json_schema"):
        return dict(kind.model_json_schema())
    (schema,), definitions = msgspec.json.schema_components(
        [kind], schema_hook=_foreign_schema, ref_template="#/$defs/{name}"
    )
    definitions = dict(definitions)
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    if name and not _mentions(definitions, name):
        schema = definitions.pop(name)
    schema = dict(schema)
    if definitions:
        schema["$defs"] = definitions
    return _lift_definitions(schema)


def to_json(value: object) -> Json:
    """What a tool answered, as JSON, a copy. Raises `NotSerializable`."""
    plain = _plain(value, "", 0)
    ensure_json(plain)
    return plain


def _plain(value: Any, path: str, depth: int) -> Json:
    if value.__class__ in _ATOMS:
        return value
    if depth > MAX_DEPTH:
        raise NotSerializable(path, f"nesting deeper than {MAX_DEPTH}, or circular,")
    members = _members(value)
    if members is not None:
        return {key: _plain(item, f"{path}/{escape_pointer(str(key))}", depth + 1) for key, item in members.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, f"{path}/{index}", depth + 1) for index, item in enumerate(value)]
    try:
        return msgspec.to_builtins(value, str_keys=True)  # dates, UUIDs, enums, decimals
    except (TypeError, ValueError) as error:
        raise NotSerializable(path, type(value).__name__) from error


def _members(value: Any) -> Mapping[Any, Any] | None:
    """The members of what becomes an object: dicts, models, dataclasses, structs."""
    if isinstance(value, Mapping):
        return value
    if hasattr(value, "model_dump"):
        dumped: Mapping[Any, Any] = value.model_dump(mode="json")
        return dumped
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        return {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(value)}
    return None


def _field(name: str, hint: Any, default: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    hint = _describe(hint)
    if default is inspect.Parameter.empty:
        return (name, hint)
    if isinstance(default, list | dict | set):
        return (name, hint, msgspec.field(default_factory=lambda: default.copy()))
    return (name, hint, default)


def _describe(hint: Any) -> Any:
    """`Annotated[str, "what it is"]` is short for a description in msgspec's words."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    notes = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    metas = [note for note in notes if isinstance(note, msgspec.Meta)]
    return Annotated[(kind, *metas)] if metas else kind


def _decode_foreign(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be made from JSON")


def _foreign_schema(kind: type) -> dict[str, Any]:
    if hasattr(kind, "model_json_schema"):
        return dict(kind.model_json_schema())
    raise InvalidArgument(f"{kind.__name__} has no JSON schema: use a plain type, a dataclass or a model.")


def _mentions(tree: Any, name: str) -> bool:
    """Whether a definition is referred to, so that it has to stay where it is."""
    if isinstance(tree, Mapping):
        return tree.get("$ref") == f"#/$defs/{name}" or any(_mentions(value, name) for value in tree.values())
    return isinstance(tree, list) and any(_mentions(item, name) for item in tree)


def _lift_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Move the `$defs` of nested pydantic schemas to the top, where their references point."""
    lifted: dict[str, Any] = {}

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        own = node.get("$defs")
        if isinstance(own, Mapping):
            lifted.update({key: walk(value) for key, value in own.items()})
        return {key: walk(value) for key, value in node.items() if key != "$defs"}

    flat: dict[str, Any] = walk(schema)
    if lifted:
        flat["$defs"] = lifted
    return flat


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
