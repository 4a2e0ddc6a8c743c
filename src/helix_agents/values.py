"""Convert typed values (dataclasses, models, dates) to plain JSON, and JSON to annotated types.

msgspec does the work for plain types, dataclasses, TypedDicts, enums and its own structs; pydantic models are
recognized by their methods, and pydantic is never imported. A value converted to JSON and back, given its type, is
equal.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .codec import MAX_DEPTH, Json, encode, ensure_json, escape_pointer
from .errors import InvalidArgument, NotSerializable

_ATOMS = (str, int, float, bool, type(None))


class InvalidInput(InvalidArgument):
    """Arguments that do not fit the signature; the message is for the model to read."""


def convert(value: Json, kind: Any, *, strict: bool = False) -> Any:
    """Return a JSON value as `kind`. Raises `InvalidInput` with a sentence that says what is wrong and where.

    Unless `strict`, numbers may come as strings: models write them so. pydantic models follow their own rules.
    """
    try:
        if hasattr(kind, "model_validate"):
            return kind.model_validate(value)
        try:
            return msgspec.convert(value, kind, str_keys=True, dec_hook=_decode_foreign)
        except msgspec.ValidationError:
            if strict:
                raise
            return msgspec.convert(value, kind, strict=False, str_keys=True, dec_hook=_decode_foreign)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InvalidInput(str(error)) from error


def to_json(value: object) -> Json:
    """Return a value as JSON, copied: a tool's result, an output, a state. Raises `NotSerializable`."""
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
        return {
            _key(key): _plain(item, f"{path}/{escape_pointer(str(key))}", depth + 1) for key, item in members.items()
        }
    items = _items(value)
    if items is not None:
        plain = [_plain(item, f"{path}/{index}", depth + 1) for index, item in enumerate(items)]
        # The order of a set differs from process to process.
        return sorted(plain, key=encode) if isinstance(value, set | frozenset) else plain
    try:
        return msgspec.to_builtins(value, str_keys=True)  # dates, UUIDs, enums, decimals
    except (TypeError, ValueError) as error:
        raise NotSerializable(path, type(value).__name__) from error


def _key(key: Any) -> Any:
    """Return the key of a member as a string if its type can be read back: enums, UUIDs, dates."""
    if isinstance(key, enum.Enum | uuid.UUID | datetime.date):
        plain = msgspec.to_builtins(key)
        return plain if isinstance(plain, str) else key
    return key


def _members(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a value that becomes an object: dicts, models, dataclasses, structs."""
    if isinstance(value, Mapping):
        return value
    if hasattr(value, "model_dump"):
        # Use the names under which it is read.
        dumped: Mapping[Any, Any] = value.model_dump(mode="json", by_alias=True)
        return dumped if isinstance(dumped, Mapping) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.array_like:
        config, fields = value.__struct_config__, msgspec.structs.fields(value)
        members = {field.encode_name: getattr(value, field.name) for field in fields}
        present = {name: member for name, member in members.items() if member is not msgspec.UNSET}
        return present if config.tag_field is None else {config.tag_field: config.tag, **present}
    return None


def _items(value: Any) -> Iterable[Any] | None:
    """Return the items of a value that becomes a list."""
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, msgspec.Struct):
        config, fields = value.__struct_config__, value.__struct_fields__
        return [*([config.tag] if config.tag is not None else ()), *(getattr(value, name) for name in fields)]
    return None


def _decode_foreign(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be made from JSON")
