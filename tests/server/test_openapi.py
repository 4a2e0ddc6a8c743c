"""The OpenAPI document matches the server: checked by schemathesis, request by random request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from helix_agents.server.app import ENDPOINTS
from helix_agents.server.routes.openapi import document
from tests.server.running import Running

MAX_EXAMPLES = 12
CHECKS = list(HealthCheck)


SCHEMA: Any = schemathesis.openapi.from_dict(document(ENDPOINTS))
OPERATIONS: dict[str, Any] = {each.label: each for each in (found.ok() for found in SCHEMA.get_all_operations())}
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


@pytest.mark.parametrize("label", sorted(OPERATIONS))
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_the_server_does_what_the_document_says(server: Running, label: str, mode: Any) -> None:
    @settings(max_examples=MAX_EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=CHECKS)
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def try_out(case: Any) -> None:
        if mode is schemathesis.GenerationMode.POSITIVE and case.query is not None:
            case.query.pop("cursor", None)  # no schema can express which ones an earlier page returned
        case.call_and_validate(base_url=server.address, headers={"Authorization": "Bearer admin-token"}, timeout=30)

    try:
        try_out()
    except Unsatisfiable:
        pytest.skip("nothing about this operation can be wrong")


async def test_every_route_is_described(server: Running) -> None:
    async with server.client(None) as nobody:
        document = (await nobody.get("/openapi.json")).json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    expected = {(each.method, each.path.replace(":id", "")) for each in ENDPOINTS}
    assert described == {*expected, ("GET", "/openapi.json")}


async def test_a_problem_is_as_described(alice: httpx.AsyncClient) -> None:
    document = (await alice.get("/openapi.json")).json()
    known = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    assert (await alice.get("/sessions/nowhere")).json()["code"] in known
