"""The OpenAPI 3.1 document, generated from the table of endpoints, so that the two cannot differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ...codec import Json
from ..endpoints import Endpoint
from ..problems import CODES
from ..requests import Id

REFERENCE = "#/components/schemas/{name}"
PATH_PARAMETER = re.compile(r"\{(\w+):id\}")
ID_SCHEMA = msgspec.json.schema(Id)
HEADERS: dict[str, Json] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 256},
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}(-end)?$"},
}
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"enum": sorted(CODES)},
        "detail": {"type": "string"},
    },
}
ERRORS_OF_ALL = ("400", "404", "500", "503")
ERRORS_OF_USERS = ("401", "403")
ERRORS_OF_BODIES = ("408", "409", "413", "415")
ERRORS_OF_STREAMS = ("410", "416", "429")


def document(endpoints: Sequence[Endpoint]) -> dict[str, Json]:
    """Return the description of these endpoints."""
    kinds = [kind for each in endpoints for kind in (each.body, each.query, each.returns) if _is_struct(kind)]
    _, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        path = PATH_PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Helix Agents", "version": "1", "description": "Durable agents over HTTP."},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, components: dict[str, Any]) -> dict[str, Json]:
    operation: dict[str, Json] = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path.replace(':id', '')}").strip("_"),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint, components),
        "responses": {str(endpoint.status): _success(endpoint), **_failures(endpoint)},
    }
    if endpoint.body is not None:
        required = bool(components[endpoint.body.__name__].get("required"))
        operation["requestBody"] = {"required": required, "content": _json(_reference(endpoint.body))}
    if not endpoint.public:
        operation["security"] = [{"bearer": []}]
    return operation


def _parameters(endpoint: Endpoint, components: dict[str, Any]) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = [
        {"name": name, "in": "path", "required": True, "schema": ID_SCHEMA}
        for name in PATH_PARAMETER.findall(endpoint.path)
    ]
    if endpoint.query is not None:
        for name, schema in components[endpoint.query.__name__]["properties"].items():
            found.append({"name": name, "in": "query", "required": False, "schema": schema})
    for name in endpoint.headers:
        found.append({"name": name, "in": "header", "required": False, "schema": HEADERS[name]})
    return found


def _success(endpoint: Endpoint) -> dict[str, Json]:
    if endpoint.status == 204:
        return {"description": "Done"}
    if endpoint.returns is bytes:
        return {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if endpoint.returns is str:
        return {"description": "Text", "content": {"application/openmetrics-text": {"schema": {"type": "string"}}}}
    schema = _reference(endpoint.returns) if _is_struct(endpoint.returns) else {"type": "object"}
    return {"description": endpoint.summary, "content": _json(schema)}


def _failures(endpoint: Endpoint) -> dict[str, Json]:
    statuses = set(ERRORS_OF_ALL)
    if not endpoint.public:
        statuses.update(ERRORS_OF_USERS)
    if endpoint.method != "GET":
        statuses.update(ERRORS_OF_BODIES)
    if endpoint.returns is bytes:
        statuses.update(ERRORS_OF_STREAMS)
    content = {"application/problem+json": {"schema": {"$ref": REFERENCE.format(name="Problem")}}}
    return {status: {"description": "Problem", "content": content} for status in sorted(statuses)}


def _json(schema: dict[str, Json]) -> dict[str, Json]:
    return {"application/json": {"schema": schema}}


def _reference(kind: Any) -> dict[str, Json]:
    return {"$ref": REFERENCE.format(name=kind.__name__)}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
