"""The kit inside workerd: the library in Pyodide, on the SQLite of a Durable Object and on `env.DB`, a request a check.

There is only one process, so checks that need two do not apply. The slow half and all of D1 run with `-m soak`.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest

from helix_agents.conformance.contracts import DOORS
from helix_agents.conformance.registry import Registry
from tests.cloudflare.workerd import PythonWorkerd

LIMIT_SECONDS = 1800
"""Long enough for the longest check on a busy machine; checks themselves detect what never arrives."""
STATE_STORE, STREAM_MANAGER, USAGE_STORE, MEMORY_STORE, BLOB_STORE, EXECUTOR = (registry for _, registry in DOORS)
QUICK = {"example", "tasks", "random", "faults"}


QUICK_SECONDS = 120
"""For a check that takes a second or two, on a busy machine."""


class Manner(NamedTuple):
    """How long random walks are, and how long a check may take."""

    steps: int
    limit_seconds: float


QUICKLY = Manner(steps=50, limit_seconds=QUICK_SECONDS)
THOROUGHLY = Manner(steps=250, limit_seconds=LIMIT_SECONDS)


def ask(server: PythonWorkerd, path: str, limit_seconds: float = LIMIT_SECONDS) -> Any:
    try:
        with urllib.request.urlopen(f"{server.url}/kit_worker/{path}", timeout=limit_seconds) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        pytest.fail(f"{error}: {error.read().decode(errors='replace')[-2000:]}", pytrace=False)
    except TimeoutError:
        with urllib.request.urlopen(f"{server.url}/kit_worker/tasks", timeout=QUICK_SECONDS) as reply:
            tasks = "\n".join(json.loads(reply.read()))
        pytest.fail(f"{path}: no reply within {limit_seconds} s. What waits there:\n{tasks}", pytrace=False)


def run(server: PythonWorkerd, home: str, name: str, how: Manner) -> None:
    result = ask(server, f"run/{home}/{quote(name)}/{how.steps}", how.limit_seconds)
    if result["outcome"] == "failed":
        pytest.fail(f"{result['detail']}\n{result['trace']}", pytrace=False)
    if result["outcome"] == "n/a":
        pytest.skip(result["detail"])


def names(*kits: Registry[Any], kinds: Iterable[str] = ()) -> list[str]:
    chosen = set(kinds)
    return [each.name for kit in kits for each in kit.select() if not chosen or each.kind in chosen]


SLOW = (
    "S2.cancel_before",
    "S2.fail_after",
    "X2.",
    "model.",
    "T2.long_stream",
    "T6.overtaken_reader",
    "X6.poison",
    "X1.a_key_holds",
    "data.big_values",
)
SHORT = [
    *names(STATE_STORE, USAGE_STORE, MEMORY_STORE, EXECUTOR, kinds=QUICK),
    *names(STREAM_MANAGER, BLOB_STORE, kinds={"example"}),
]
CARRYING = [each.name for each in EXECUTOR.select() if each.run.__module__.endswith(("x2_carry", "x2_turns"))]
SAMPLED = (
    "S17.point_is_exact",
    "S17.one_leaves",
    "X10.unknown_and_abandoned",
    "X10.asked_again",
    "X11.due_once_by_many",
)
"""Branches, effects and schedules: what could fail on a D1 that is reached by requests, and takes a second at most."""
ALL = names(STATE_STORE, STREAM_MANAGER, USAGE_STORE, MEMORY_STORE, BLOB_STORE, EXECUTOR)


def test_importing_the_library_asks_for_no_entropy(python_workers: PythonWorkerd) -> None:
    facts = ask(python_workers, "facts")
    assert facts["entropy_at_import"] == 0
    assert not facts["sqlite3"], "sqlite3 was imported; some Workers have none"
    assert facts["heap_bytes"] < 100_000_000, "a Worker has 128 MB"


def test_a_check_that_hangs_is_reported_with_what_it_waits_at(python_workers: PythonWorkerd) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)hang: no reply within 2 s.*kit_worker\.py:\d+ fetch"):
        ask(python_workers, "hang", 2)


@pytest.mark.parametrize("name", [name for name in SHORT if not name.startswith(SLOW) or name in CARRYING])
def test_in_an_object(python_workers: PythonWorkerd, name: str) -> None:
    run(python_workers, "do", name, QUICKLY)


@pytest.mark.parametrize("name", [*CARRYING, *SAMPLED])
def test_in_d1(python_workers: PythonWorkerd, name: str) -> None:
    run(python_workers, "d1", name, QUICKLY)


@pytest.mark.soak
@pytest.mark.parametrize("home", ["do", "d1"])
@pytest.mark.parametrize("name", ALL)
def test_all_inside(python_workers: PythonWorkerd, name: str, home: str) -> None:
    run(python_workers, home, name, THOROUGHLY)


@pytest.mark.parametrize("store", ["own", "shared"])
async def test_twelve_requests_at_once(python_workers: PythonWorkerd, store: str) -> None:
    """Each uses its own store, as it should, and then all share one in a module variable."""
    async with aiohttp.ClientSession() as session:

        async def write() -> Any:
            async with session.get(f"{python_workers.url}/kit_worker/{store}/twelve-{store}") as reply:
                return await reply.json(content_type=None)

        replies = await asyncio.gather(*(write() for _ in range(12)))
        assert max(reply.get("n", 0) for reply in replies) == 12, replies


async def test_a_shared_store_whose_request_was_cut_off_says_what_to_do(python_workers: PythonWorkerd) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{python_workers.url}/kit_worker/cut/cut-off") as reply,
    ):
        told = await reply.json(content_type=None)
    assert "StoreUnavailable" in told["error"]
    assert "create a store for each request" in told["error"]


def test_a_store_on_a_d1_session_continues_from_its_bookmark(python_workers: PythonWorkerd) -> None:
    found = ask(python_workers, "replicas/through-sessions", QUICK_SECONDS)
    assert found["bookmark"], "a session has a bookmark after its first query"
    assert found == {**found, "before": None, "n": 1, "plain": None}
