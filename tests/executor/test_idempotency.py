"""Idempotency keys: the same request finds its run, another request conflicts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helix_agents.errors import IdempotencyConflict, InvalidArgument
from helix_agents.executor.session.idempotency import find_run, keyed_request
from helix_agents.types import RunRecord

RUN = RunRecord(run_id="r", session_id="s", turn=1, status="running")


def test_a_key_finds_its_run_only_with_the_same_request() -> None:
    keyed = keyed_request("k", ["agent", "Hi"])
    run = replace(RUN, idempotency_key="k", request_digest=keyed.digest)
    assert find_run("s", [RUN, run], keyed) is run
    assert find_run("s", [RUN], keyed) is None
    with pytest.raises(IdempotencyConflict):
        find_run("s", [run], keyed_request("k", ["agent", "Bye"]))


@pytest.mark.parametrize("key", ["", "x" * 257, None, 5])
def test_an_invalid_key_is_rejected(key: Any) -> None:
    with pytest.raises(InvalidArgument, match="idempotency key"):
        keyed_request(key, [])
