"""Tokens of deferred calls: only a secret of ours makes one, for exactly one call."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.errors import InvalidArgument
from helix_agents.executor.later.tokens import MAX_TOKEN_CHARS, HookTarget, HookTokens

OLD, NEW = "o" * 16, "n" * 16
TARGET = HookTarget("s", "i", "call", 5)


def test_a_token_leads_back_to_its_call() -> None:
    tokens = HookTokens(NEW, None)
    assert tokens.read(tokens.sign(TARGET)) == TARGET


def test_earlier_secrets_are_still_accepted_and_the_first_one_signs() -> None:
    made = HookTokens(OLD, None).sign(TARGET)
    both = HookTokens([NEW, OLD], None)
    assert both.read(made) == TARGET
    assert HookTokens(OLD, None).read(both.sign(TARGET)) is None


def test_a_token_that_was_changed_is_nothing() -> None:
    tokens = HookTokens(NEW, None)
    good = tokens.sign(TARGET)
    other = tokens.sign(HookTarget("s", "i", "other", 5))
    forged = f"{other.partition('.')[0]}.{good.partition('.')[2]}"
    for bad in ("", ".", "a.b", good[:-2], good + "A", f"{good} ", forged, "ü.ü", "A" * (MAX_TOKEN_CHARS + 1)):
        assert tokens.read(bad) is None, bad


@pytest.mark.parametrize(
    ("secret", "url", "reason"),
    [("short", None, "at least 16"), ([NEW, 5], None, "at least 16"), (NEW, "ftp://x", "http")],
)
def test_a_weak_secret_or_an_address_that_is_not_http_is_rejected(secret: Any, url: str | None, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        HookTokens(secret, url)
