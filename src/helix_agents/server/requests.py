"""Requests and responses: bodies and queries are checked against structs, values become JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, get_origin, get_type_hints

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ..codec import MAX_DEPTH, Json, encode, ensure_json
from ..errors import InvalidArgument
from ..ids import MAX_ID_LENGTH
from .problems import Problem

BODY_TIMEOUT_SECONDS = 30
MAX_SEQUENCE = 2**63 - 1
MAX_SEQUENCE_DIGITS = 19
END_MARK = "-end"

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_BRACKETS = re.compile(rb"[^][{}]+")

T = TypeVar("T")

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=r"^[^\x00-\x1f\x7f-\x9f{}]+$")]
"""An id that `ids.ensure_id` accepts, for the OpenAPI document and an early rejection."""

NewId = Annotated[Id, msgspec.Meta(extra_json_schema={"pattern": r"^[^\x00-\x1f\x7f-\x9f{}/]+$"})]
"""An id under which a client may create a session. One with a slash is accepted if the session exists already."""


def json_response(value: Json, status: int = 200) -> Response:
    """Return a value as a JSON response."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return Response(encode(value), status, headers, media_type="application/json")


async def read_body(request: Request, kind: type[T], *, max_bytes: int) -> T:
    """Return the body of a request as a struct. Raises a `Problem` or `InvalidArgument` for anything else.

    No body at all is an empty object, so that a POST whose members are all optional needs none.
    """
    text = await read_bytes(request, max_bytes)
    if not text:
        return convert({}, kind)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Problem(415, "unsupported_media_type", "Send the body as application/json.")
    return convert(parse_json(text), kind)


def read_query(connection: HTTPConnection, kind: type[T]) -> T:
    """Return the query parameters that `kind` has as fields. Others are ignored; lists are given by repeating one."""
    if "" in connection.query_params:
        raise InvalidArgument("A query parameter has no name: write ?name=value.")
    return convert(_query_fields(connection.query_params, kind), kind, strict=False)


class Reached(NamedTuple):
    """The position that a reconnecting client has reached, and whether it has seen the end of the stream there."""

    sequence: int
    at_end: bool


def last_event_id(connection: HTTPConnection) -> Reached | None:
    """Return the position in the `Last-Event-ID` of a request; None if it has none. Raises `InvalidArgument`."""
    given = connection.headers.get("last-event-id", "").strip()
    if not given:
        return None
    digits = given.removesuffix(END_MARK)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= MAX_SEQUENCE_DIGITS
    if not is_number or int(digits) > MAX_SEQUENCE:
        raise InvalidArgument(f"Last-Event-ID must be the id of an earlier event, not {given[:40]!r}.")
    return Reached(int(digits), at_end=digits != given)


def start_of_stream(connection: HTTPConnection, from_sequence: int) -> int:
    """Return the position to stream from: `Last-Event-ID`, else the one of the query."""
    reached = last_event_id(connection)
    return from_sequence if reached is None else reached.sequence


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """Return the whole body. Raises a `Problem` if it is too large or does not arrive in time."""
    return await read_limited(request.stream(), request.headers.get("content-length"), max_bytes)


async def read_limited(parts: AsyncIterable[bytes], announced: str | None, max_bytes: int) -> bytes:
    """Return a body. Raises a `Problem` as soon as it is known to be longer than `max_bytes`.

    `announced`: the `Content-Length` header.
    """
    too_large = Problem(413, "body_too_large", f"A body may have at most {max_bytes} bytes.", max_body_bytes=max_bytes)
    announced = announced or ""
    if announced.isdigit() and (len(announced) > MAX_SEQUENCE_DIGITS or int(announced) > max_bytes):
        raise too_large
    read: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            async for part in parts:
                size += len(part)
                if size > max_bytes:
                    raise too_large
                read.append(part)
    except TimeoutError:
        raise Problem(408, "request_timeout", "The body did not arrive in time.") from None
    return b"".join(read)


def parse_json(text: bytes) -> Json:
    """Return the value of a body. Raises `InvalidArgument` if it is not JSON, or nested too deeply to be parsed."""
    _ensure_shallow(text)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        # msgspec rejects lone surrogates, which are JSON. NaN and infinity get this far and are rejected below.
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArgument("The body is not JSON.") from None
    ensure_json(value)
    return value


def _ensure_shallow(text: bytes) -> None:
    """Raise `InvalidArgument` for deep nesting, before any parser recurses: in a Worker that ends the whole isolate."""
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _NOT_BRACKETS.sub(b"", _STRINGS.sub(b"", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise InvalidArgument(f"The body is nested more than {MAX_DEPTH} levels deep.")


def _query_fields(query: QueryParams, kind: type) -> Mapping[str, Any]:
    fields = get_type_hints(kind)
    found: dict[str, Any] = {}
    for name in query:
        if name in fields:
            values = query.getlist(name)
            if get_origin(fields[name]) is list:
                found[name] = values
            elif len(values) > 1:
                raise InvalidArgument(f"{name} is given {len(values)} times: pass it once.")
            else:
                found[name] = values[0]
    return found


def convert(value: Json, kind: type[T], *, strict: bool = True) -> T:
    """Return a value as a struct. Raises `InvalidArgument`."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"{error}.") from None
