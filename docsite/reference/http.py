"""The routes of the server, from its OpenAPI document."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from helix_agents import AgentExecutor, ScriptedLLM, create_app
from helix_agents.inmemory import InMemoryStateStore, InMemoryStreamManager, InMemoryUsageStore

from .markdown import anchor, cell, code, table

BESIDE_THE_DOCUMENT = """## GET /ws/{session_id}

The stream as WebSocket messages: OpenAPI cannot describe it, [server](../server.md) does.

## GET /

The [inspector](../inspector.md), and its files below `/inspector/`.

## GET /client.js

The [client for browsers](../browser.md), a module without dependencies."""


def openapi_document() -> dict[str, Any]:
    """Return what GET /openapi.json returns."""
    executor = AgentExecutor(
        InMemoryStateStore(), InMemoryStreamManager(), ScriptedLLM([]), usage_store=InMemoryUsageStore()
    )
    client = TestClient(create_app(executor, allow_unauthenticated=True), base_url="http://localhost")
    document: dict[str, Any] = client.get("/openapi.json").json()
    return document


def http_page() -> str:
    """Return every route with its parameters, body and responses."""
    document = openapi_document()
    parts = [
        "# HTTP routes",
        "Made from `GET /openapi.json`. Errors are `application/problem+json` with a `code`: see [errors](errors.md). "
        "[Server](../server.md) explains streams, users and limits. The bodies follow the routes.",
    ]
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            parts.append(route_section(method, path, operation, document["components"]["schemas"]))
    bodies = [
        body_section(name, document["components"]["schemas"]) for name in sorted(document["components"]["schemas"])
    ]
    return "\n\n".join([*parts, BESIDE_THE_DOCUMENT, *filter(None, bodies)]) + "\n"


def route_section(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return the section of one route."""
    rows = [
        [
            code(each["name"]),
            each["in"],
            cell(code(shown_schema(each.get("schema", {}), schemas))),
            "yes" if each.get("required") else "",
        ]
        for each in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows += [[code(name), "body", cell(code(kind)), needed] for name, kind, needed in members(body, schemas)]
    head = f"## {method.upper()} {path}\n\n{operation.get('summary', '')}."
    return f"{head}\n\n{table(['', 'in', 'type', 'required'], rows)}\n\n{responses(operation)}"


def responses(operation: dict[str, Any]) -> str:
    """Return what a route returns, and the statuses of its errors."""
    good = {status: each for status, each in operation["responses"].items() if status < "400"}
    errors = ", ".join(sorted(operation["responses"].keys() - good.keys()))
    returned = ", ".join(f"{status} {_content(each)}".strip() for status, each in sorted(good.items()))
    return f"Returns {returned}." + (f" Errors: {errors}." if errors else "")


def _content(response: dict[str, Any]) -> str:
    for kind, each in response.get("content", {}).items():
        name = each.get("schema", {}).get("$ref", "").rpartition("/")[2]
        return f"[{name}](#{anchor(name)})" if name else code(kind)
    return ""


def body_section(name: str, schemas: dict[str, Any]) -> str:
    """Return the section of a request's or response's body; nothing if it has no members of its own."""
    rows = [[code(member), cell(code(kind)), needed] for member, kind, needed in members(schemas[name], schemas)]
    about = schemas[name].get("description", "")
    return f"## {name}\n\n{about}\n\n{table(['', 'type', 'required'], rows)}" if rows else ""


def members(schema: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the members of an object: name, type, whether it is required."""
    found = resolved(schema, schemas)
    required = found.get("required", ())
    return [
        (name, shown_schema(each, schemas), "yes" if name in required else "")
        for name, each in found.get("properties", {}).items()
    ]


def resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference followed."""
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    return schema


def shown_schema(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return a schema as a short type."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(repr(each) for each in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(shown_schema(each, schemas) for each in schema["anyOf"])
    kind = str(schema.get("type", "any"))
    return f"[{shown_schema(schema['items'], schemas)}]" if kind == "array" and schema.get("items") else kind
