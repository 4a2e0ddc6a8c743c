"""The whole kit on our own backends, and the parts of it that the model itself must pass."""

from __future__ import annotations

from helix_agents.conformance.contracts import checks_for
from helix_agents.conformance.pytest import conformance_tests
from tests.conformance.harnesses import (
    D1LimitsHarness,
    DelegatingHarness,
    DurableObjectLimitsHarness,
    MemoryHarness,
    ModelHarness,
    SqliteHarness,
)

test_memory = conformance_tests(MemoryHarness)
test_sqlite = conformance_tests(SqliteHarness)

# Limits change statements, not files: what several processes do to a file is seen above, and to Cloudflare in
# tests/cloudflare.
IN_ONE_PROCESS = ["example", "tasks", "random", "faults"]
CELLS_AND_HISTORY = ("S2", "S4", "S5", "S8", "S9", "S13", "S17")
test_sqlite_under_d1_limits = conformance_tests(D1LimitsHarness, only=IN_ONE_PROCESS)
test_sqlite_under_limits_of_a_durable_object = conformance_tests(
    DurableObjectLimitsHarness,
    only=[
        check.name
        for check in checks_for(DurableObjectLimitsHarness, IN_ONE_PROCESS)
        if check.kind == "random" or check.guarantee in CELLS_AND_HISTORY
    ],
)

test_delegating = conformance_tests(DelegatingHarness, only=["example"])

# The model validates nothing and has no verbs and no second process; otherwise it must pass like any store.
JUDGED_OF_THE_MODEL = [
    check.name
    for check in checks_for(ModelHarness, ["example", "tasks"])
    if check.guarantee not in ("input", "S13")
    and not check.name.endswith(("_is_flat", "_is_kept_or_refused", "_is_one_round_trip"))
]
test_model = conformance_tests(ModelHarness, only=JUDGED_OF_THE_MODEL)
