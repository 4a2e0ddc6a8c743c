"""The kit on Redis 6.2 and Valkey 9, on one server and a cluster, with and without scripts, decoding or not.

Everything runs everywhere with `-m soak`. By default one configuration gets nearly the whole kit, and each of the
others the part in which it differs.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from helix_agents.conformance.contracts import checks_for
from helix_agents.conformance.registry import Check
from helix_agents.conformance.run import run_check
from tests.redis.harnesses import RedisHarness, harness_for


class Configuration(NamedTuple):
    """The fixture of a server, whether its clients decode responses."""

    server: str
    decode: bool = False


CONFIGURATIONS = {
    "valkey": Configuration("valkey"),
    "valkey_without_scripts": Configuration("valkey_without_scripts"),
    "oldest_redis": Configuration("oldest_redis", decode=True),
    "cluster": Configuration("cluster"),
}

SLOW = {
    "S2.cancel_before_leaves_whole",
    "S2.fail_before_leaves_whole",
    "S3.one_process_commits",
    "S4.processes_increment",
    "S4.processes_stage",
    "S6.one_process_swaps",
    "T8.history_is_shared",
    "T9.readers_at_all_places",
}
"""Checks whose subject other checks of the default run touch as well."""

DEFAULT_GUARANTEES = {
    "valkey_without_scripts": {
        "S2",
        "S3",
        "S4",
        "S5",
        "S8",
        "S9",
        "S12",
        "T1",
        "T3",
        "T5",
        "T6",
        "T7",
        "T10",
        "U1",
        "M1",
    },
    "oldest_redis": {"S1", "S2", "S8", "S9", "S13", "T1", "T2", "T6", "T7", "T10"},
    "cluster": {"S1", "S2", "S7", "S9", "S10", "S11", "S14", "T2", "T5", "T8", "U3", "U6", "M5", "M6"},
}
SHORT_KINDS = {"example", "tasks"}


def _is_default(configuration: str, check: Check[Any]) -> bool:
    if check.name in SLOW:
        return False
    if configuration == "valkey":
        return True
    return check.kind in SHORT_KINDS and check.guarantee in DEFAULT_GUARANTEES[configuration]


def _cases() -> list[Any]:
    cases = []
    for configuration in CONFIGURATIONS:
        for check in checks_for(RedisHarness):
            marks = [] if _is_default(configuration, check) else [pytest.mark.soak]
            cases.append(pytest.param(configuration, check, marks=marks, id=f"{configuration}-{check.name}"))
    return cases


@pytest.mark.parametrize(("configuration", "check"), _cases())
def test_redis(configuration: str, check: Check[Any], request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(CONFIGURATIONS[configuration].server)
    made = harness_for(url, decode=CONFIGURATIONS[configuration].decode)
    result = asyncio.run(run_check(check, made))
    if result.outcome == "failed":
        pytest.fail(f"{check.title}: {result.detail}", pytrace=False)
    if result.outcome == "n/a":
        pytest.skip(result.detail)
