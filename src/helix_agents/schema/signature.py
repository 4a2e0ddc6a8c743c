"""From a Python signature to a tool's input: a JSON schema for the model, and a check of what the model sends.

msgspec does the work for plain types, dataclasses, TypedDicts, enums and its own structs; pydantic models are
recognized by their methods; pydantic is imported only for its own annotations (`Field`). This module does not know
agents or runs.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from ..codec import Json
from ..errors import InvalidArgument
from ..values import InvalidInput, convert
from .choices import allowed_at, may_have_choices, meant
from .docstrings import split_docstring


class InputModel:
    """The parameters of one function, as the model must fill them in."""

    def __init__(self, name: str, fields: list[tuple[str, Any, Any]]) -> None:
        fields = [_without_field_info(*field) for field in fields]
        self._hints = {name: hint for name, hint, _ in fields}
        self._has_choices = any(map(may_have_choices, self._hints.values()))
        self._names = [field[0] for field in fields]
        self._adapters = {name: _adapter(hint) for name, hint, _ in fields if _needs_pydantic(hint)}
        plain = [(name, Any if name in self._adapters else hint, default) for name, hint, default in fields]
        self._struct = msgspec.defstruct(name, [_field(*field) for field in plain], forbid_unknown_fields=True)
        schema = json_schema(self._struct)
        for adapted, adapter in self._adapters.items():
            schema["properties"][adapted].update(adapter.json_schema())
        self.schema = _lift_definitions(schema)
        self.schema.pop("title", None)

    def parse(self, arguments: Json) -> dict[str, Any]:
        """Return the arguments as the function expects them. Raises `InvalidInput`.

        Lenient: a number may be a string; an enum member may be given by name or in another case.
        """
        if self._has_choices:
            arguments = meant(arguments, self._hints)
        try:
            filled = convert(arguments, self._struct)
        except InvalidInput as error:
            raise InvalidInput(f"{error}{allowed_at(self._hints, str(error))}") from error
        values = {name: getattr(filled, name) for name in self._names}
        for name in self._adapters.keys() & cast(dict[str, Json], arguments).keys():
            try:
                values[name] = self._adapters[name].validate_python(values[name])
            except ValueError as error:
                raise InvalidInput(f"{name}: {error}") from error
        return values


def parse_as(value: Json, kind: Any) -> Any:
    """Return a value from a model as `kind`, as leniently as arguments. Raises `InvalidInput`."""
    try:
        return convert(meant(value, kind), kind)
    except InvalidInput as error:
        raise InvalidInput(f"{error}{allowed_at(kind, str(error))}") from error


def input_model(
    function: Callable[..., Any], *, skip: frozenset[str], local_names: Mapping[str, Any] | None = None
) -> InputModel:
    """Return the input model of a function, without the parameters in `skip`."""
    hints = _hints(function, local_names)
    _, described = split_docstring(function.__doc__)
    fields = []
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.name in skip:
            continue
        if place == 0 and parameter.name in ("self", "cls") and parameter.name not in hints:
            raise InvalidArgument(
                f"Tool {_name(function)!r} is an unbound method: make the tool from the bound method, "
                "tool(thing.method)."
            )
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidArgument(
                f"Tool {_name(function)!r}: parameter {parameter.name!r} cannot be filled by a model: "
                "use an ordinary parameter, without * or **, and not positional-only."
            )
        hint = hints.get(parameter.name, Any)
        if described.get(parameter.name) and not _has_description(hint, parameter.default):
            hint = Annotated[hint, described[parameter.name]]
        fields.append((parameter.name, hint, parameter.default))
    return InputModel(_name(function), fields)


def find_context(
    function: Callable[..., Any], context_type: type, local_names: Mapping[str, Any] | None = None
) -> str | None:
    """Return the name of the parameter annotated with the context type, optional or not."""
    for name, hint in _hints(function, local_names).items():
        if name != "return" and any(_is_context(kind, context_type) for kind in _alternatives(hint)):
            return name
    return None


def context_arguments(
    function: Callable[..., Any], context_type: type, local_names: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """Return the type arguments of the context type in the function's annotation."""
    for name, hint in _hints(function, local_names).items():
        for kind in _alternatives(hint):
            if name != "return" and _is_context(kind, context_type):
                return get_args(kind)
    return ()


def state_schema(function: object, local_names: Mapping[str, Any] | None = None) -> Any:
    """Return the schema that a function of the state expects: the annotation of its first parameter; None for plain
    JSON."""
    try:
        hints = get_type_hints(function, localns=dict(local_names or {}))
        first = next(iter(inspect.signature(cast(Callable[..., Any], function)).parameters), None)
    except (NameError, TypeError, ValueError):
        return None
    kind = hints.get(first) if first is not None else None
    return kind if isinstance(kind, type) and not issubclass(kind, Mapping) and kind is not object else None


def _has_description(hint: Any, default: Any) -> bool:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(note, str) or getattr(note, "description", None) for note in (*notes, default))


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_context(kind: Any, context_type: type) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, context_type)


def _hints(function: Callable[..., Any], local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=dict(local_names or {}), include_extras=True)
    except NameError as error:
        raise InvalidArgument(
            f"Tool {_name(function)!r}: its annotations cannot be read ({error}): define or import the type before it, "
            "outside of `if TYPE_CHECKING`."
        ) from error


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the self-contained JSON schema of a type: `$defs` inside, references local."""
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


def _field(name: str, hint: Any, default: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    hint = _describe(hint)
    if default is inspect.Parameter.empty:
        return (name, hint)
    if isinstance(default, list | dict | set):
        return (name, hint, msgspec.field(default_factory=lambda: default.copy()))
    return (name, hint, default)


def _describe(hint: Any) -> Any:
    """Expand `Annotated[str, "what it is"]` to msgspec's form of a description."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    notes = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    metas = [note for note in notes if isinstance(note, msgspec.Meta)]
    return Annotated[(kind, *metas)] if metas else kind


def _needs_pydantic(hint: Any) -> bool:
    """Return whether an annotation contains anything that only pydantic understands."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        return any(_is_pydantics(note) for note in notes) or _needs_pydantic(kind)
    return any(_needs_pydantic(part) for part in get_args(hint))


def _is_pydantics(note: object) -> bool:
    return type(note).__module__.partition(".")[0] in ("pydantic", "annotated_types")


def _adapter(hint: Any) -> Any:
    import pydantic  # optional: a caller that uses its annotations has it

    return pydantic.TypeAdapter(_with_descriptions(hint, pydantic.Field))


def _with_descriptions(hint: Any, field: Callable[..., Any]) -> Any:
    """Expand the short form of a description to pydantic's form."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    return Annotated[(kind, *(field(description=note) if isinstance(note, str) else note for note in notes))]


def _without_field_info(name: str, hint: Any, default: Any) -> tuple[str, Any, Any]:
    """Rewrite `n: int = Field(ge=1)` to `n: Annotated[int, Field(ge=1)]`."""
    if not (_is_pydantics(default) and hasattr(default, "is_required")):
        return name, hint, default
    given = inspect.Parameter.empty if default.is_required() else default.get_default(call_default_factory=True)
    return name, Annotated[hint, default], given


def _foreign_schema(kind: type) -> dict[str, Any]:
    if hasattr(kind, "model_json_schema"):
        return dict(kind.model_json_schema())
    raise InvalidArgument(f"{kind.__name__} has no JSON schema: use a plain type, a dataclass or a model.")


def _mentions(tree: Any, name: str) -> bool:
    """Return whether a definition is referenced and must stay where it is."""
    if isinstance(tree, Mapping):
        return tree.get("$ref") == f"#/$defs/{name}" or any(_mentions(value, name) for value in tree.values())
    return isinstance(tree, list) and any(_mentions(item, name) for item in tree)


def _lift_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Move the `$defs` of nested pydantic schemas to the top, where their references point."""
    lifted: dict[str, Any] = {}
    origins: dict[str, Any] = {}

    def free_name(name: str, definition: Any) -> str:
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        return next(n for n in itertools.chain([name], numbered) if origins.get(n, definition) == definition)

    def walk(node: Any, names: Mapping[str, str]) -> Any:
        if isinstance(node, list):
            return [walk(item, names) for item in node]
        if not isinstance(node, Mapping):
            return node
        own = node.get("$defs")
        if isinstance(own, Mapping):
            # Two models may have inner models of the same name. Also comparing the definitions around them makes equal
            # mean identical.
            names = {**names, **{key: free_name(key, (value, own)) for key, value in own.items()}}
            origins.update({names[key]: (value, own) for key, value in own.items()})
            lifted.update({names[key]: walk(value, names) for key, value in own.items()})
        walked = {key: walk(value, names) for key, value in node.items() if key != "$defs"}
        reference = walked.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            name = reference.removeprefix("#/$defs/")
            walked["$ref"] = f"#/$defs/{names.get(name, name)}"
        return walked

    flat: dict[str, Any] = walk(schema, {})
    if lifted:
        flat["$defs"] = lifted
    return flat


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
