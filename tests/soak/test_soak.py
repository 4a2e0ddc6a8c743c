"""The short form of `./dev soak`, and that its checker notices what it is for."""

from __future__ import annotations

import datetime
import secrets
from typing import Any

import pytest

from tests.soak.checker import Raw, problems_of
from tests.soak.clients import Session
from tests.soak.publish import PAGE, with_report
from tests.soak.run import Report, soak
from tests.soak.workload import STEPS, expected_roles, expected_state

SHORT_SECONDS = 6.0


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis", pytest.param("cluster", marks=pytest.mark.soak)])
async def test_sessions_under_faults_are_as_if_nothing_had_happened(backend: str) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    report = await soak(backend, SHORT_SECONDS, seed)
    assert report.violations == []
    assert report.sessions >= 2
    assert sum(report.faults.values()) >= 2


CALLS = [(run, step, name) for run in ("run-1", "run-2") for step in range(STEPS) for name in ("work", "count")]


def good() -> tuple[Session, tuple[str, Any], Raw]:
    """Return a session that is as it should be."""
    session = Session("s", [True], ["regenerate"])
    session.acknowledged, session.is_over, session.read = 1, True, [1, 2, 5]
    chunks: list[tuple[int, dict[str, Any]]] = [
        (1, {"type": "a"}),
        (2, {"type": "step_committed", "step_count": 1}),
        (5, {"type": "stream_rewound"}),
    ]
    messages = [{"role": role} for role in expected_roles([True])]
    return (
        session,
        ("completed", expected_state([True])),
        Raw(messages, ["completed", "completed"], chunks, 0, messages[1:], CALLS),
    )


def test_the_checker_accepts_a_good_session() -> None:
    assert problems_of(*good()) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"messages": [{"role": "user"}]}, "has the messages"),
        ({"runs": ["completed", "running"]}, "without an end"),
        ({"runs": ["completed"] * 3}, "for 2 turns"),
        ({"shelved": []}, "put aside"),
        ({"shelved": [{"role": "user"}] * 12}, "put aside"),
        ({"staged": 1}, "staged"),
        ({"tools": CALLS[1:]}, "5 calls of work for 2 turns"),
        ({"tools": [*CALLS, CALLS[0]]}, "twice in run-1"),
        ({"chunks": [(1, {"type": "a"}), (5, {"type": "a"})]}, "without a marker"),
        ({"chunks": [(n, {"type": "step_committed", "step_count": 1}) for n in (1, 2)]}, "announced commits"),
        ({"chunks": [(n, {"type": "a"}) for n in (1, 2, 3, 4, 5)]}, "missed"),
    ],
)
def test_the_checker_notices(change: dict[str, Any], told: str) -> None:
    session, state, raw = good()
    assert told in " ".join(problems_of(session, state, raw._replace(**change)))


def test_the_checker_notices_lost_sessions_lost_state_and_doubled_reads() -> None:
    session, state, raw = good()
    assert problems_of(session, None, raw) == ["lost"]
    assert "not ('completed'" in problems_of(session, ("completed", {"done": []}), raw)[0]
    session.read = [1, 2, 2, 5]
    assert "twice" in problems_of(session, state, raw)[0]


def test_a_published_row_replaces_the_one_before() -> None:
    page, date = PAGE.read_text(encoding="utf-8"), datetime.date(2026, 11, 18)
    once = with_report(page, Report("sqlite", 1, 60.0, sessions=3, faults={"kill -9": 2}), date)
    twice = with_report(once, Report("sqlite", 1, 600.0, sessions=1234, faults={"kill -9": 20}), date)
    assert "| sqlite | 2026-11-18 | 10 | 1,234 |" in twice
    assert twice.count("| sqlite | 2026") == 1
