"""The public API is pinned: names, parameters with defaults, fields."""

from __future__ import annotations

import difflib
from typing import Any

from tests.packaging.api import PINNED, listing, object_lines


def test_the_public_api_is_as_pinned() -> None:
    pinned, found = PINNED.read_text(encoding="utf-8"), listing()
    changes = list(difflib.unified_diff(pinned.splitlines(), found.splitlines(), n=0, lineterm=""))[2:]
    assert changes == [], "say it in CHANGELOG.md, then run `python -m tests.packaging.api`"


def test_a_parameter_with_its_default_is_pinned() -> None:
    def greet(self: Any, name: str, /, *names: str, loud: bool = False) -> str:
        return name

    assert [*object_lines("greet", greet, "here")] == ["greet(name, /, *names, loud=False)"]


def test_methods_and_fields_of_a_class_are_pinned() -> None:
    lines = listing().splitlines()
    assert "helix_agents.StateStore.load_state(session_id)" in lines
    assert "helix_agents.SessionState.custom_state" in lines
    assert not [line for line in lines if line.startswith("helix_agents.redis.RedisStateStore.load_state")]
