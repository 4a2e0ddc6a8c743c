"""What a store rejects: the fast check of a session's fields agrees with the slow one, whose messages it uses."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec
import pytest

from helix_agents import HelixError, InvalidArgument, SessionState
from helix_agents.codec import ensure_json
from helix_agents.state import StepWrites
from helix_agents.stores.state.validate import ensure_state, ensure_writes
from helix_agents.types import InterruptFlag, PendingClientToolCall, TracingContext


class Colour(StrEnum):
    RED = "active"


ANYTHING: list[Any] = [
    None, True, False, 0, 1, -1, 2**63 - 1, 2**63, 2**70, 1.0, 1.5, float("nan"), "", "active", "x" * 300, "a{b", b"x",
    (), ("a",), (1,), [], ["a"], {"a"}, {}, {"a": "b"}, {"a": 1}, {1: "a"}, {"a": None}, Colour.RED, Decimal(1),
    InterruptFlag(), TracingContext("a", "b"), {"a": PendingClientToolCall("a", "b")}, {"a": {"tool_call_id": "a"}},
]  # fmt: skip


def complaint(check: Callable[[], object]) -> str:
    """Return the error of a check, '' if there is none."""
    try:
        check()
    except HelixError as error:
        return str(error)
    return ""


def fits(state: SessionState) -> bool:
    """Return the verdict of the slow check: field by field, by type and by the limits of counts."""
    try:
        msgspec.convert(msgspec.structs.asdict(state), SessionState)
    except msgspec.ValidationError:
        return False
    return 0 <= state.step_count < 2**53 and 0 <= state.resume_count < 2**53


@pytest.mark.parametrize("field", SessionState.__struct_fields__)
def test_a_session_is_refused_if_and_only_if_a_field_does_not_fit(field: str) -> None:
    plain = SessionState("a", "agent", "a")
    for value in ANYTHING:
        state = msgspec.structs.replace(plain, **{field: value})
        refused = complaint(partial(ensure_state, "a", state))
        if not fits(state):
            assert refused, f"{field}={value!r} was taken"
        elif field not in ("session_id", "agent_type", "stream_id", "parent_session_id", "root_session_id", "user_id"):
            judged_otherwise = field in ("custom_state", "output", "interrupt_context", "tags", "expires_at", "wake_at")
            assert not refused or judged_otherwise, f"{field}={value!r}: {refused}"


def test_the_field_that_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"Invalid SessionState: Expected `int`, got `bool` .*step_count"):
        ensure_state("a", SessionState("a", "agent", step_count=True))
    with pytest.raises(InvalidArgument, match=r"step_count must be an integer from 0 to \d+, not -1\."):
        ensure_state("a", SessionState("a", "agent", step_count=-1))


def test_writes_are_judged_like_values() -> None:
    for value in ANYTHING:
        writes = StepWrites([{"kind": "replace", "path": ["a", "b"], "value": value}])
        assert complaint(partial(ensure_writes, writes)) == complaint(partial(ensure_json, value, "/a/b"))
