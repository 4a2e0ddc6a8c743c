"""Effects once (X10) and due times (X11) on a cluster and where scripts are forbidden. `HELIX_SOAK=1`: every check."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
import redis

from helix_agents.conformance.pytest import conformance_tests
from tests.executor.harnesses import ShortHarness
from tests.servers.redis_cluster import RedisCluster

SOAKING = os.environ.get("HELIX_SOAK") == "1"
CHECKS = (
    "X10.dead_at_any_point",
    "X10.action_replay_without_a_key",
    "X10.switched_branches",
    "X10.aborted_with_an_open_step",
    "X10.taken_back",
    "X10.taken_back_once",
    "X11.missed_and_jumps",
    "X11.one_key_one_schedule",
    "X11.submitted_for_later",
)


class ClusterHarness(ShortHarness):
    name: ClassVar[str] = "effects on a cluster"


class WithoutScriptsHarness(ShortHarness):
    name: ClassVar[str] = "effects without scripts"


@pytest.fixture
def empty_cluster(cluster_of_three: RedisCluster) -> None:
    cluster_of_three.flush()
    ClusterHarness.url = cluster_of_three.url


@pytest.fixture
def plain_user(valkey_without_scripts: str) -> None:
    with redis.Redis.from_url(valkey_without_scripts) as client:
        client.flushall()
    WithoutScriptsHarness.url = valkey_without_scripts


ONLY = ("X10", "X11") if SOAKING else CHECKS
test_cluster = pytest.mark.usefixtures("empty_cluster")(conformance_tests(ClusterHarness, only=ONLY))
test_without_scripts = pytest.mark.usefixtures("plain_user")(conformance_tests(WithoutScriptsHarness, only=ONLY))
