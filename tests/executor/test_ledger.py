"""The ledger of effects: what a conversation did, and which call would repeat it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helix_agents.executor.step.ledger import (
    EffectRecord,
    abandoned_effects,
    effects_message,
    find_record,
    recorded_effects,
)
from helix_agents.messages import Message

CALL: Message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "pay", "arguments": {"n": 1}}]}
PAID: Message = {"role": "tool", "tool_call_id": "c", "tool_name": "pay", "content": "ok", "effect_key": "k"}
RECORD = EffectRecord("k", "pay", {"n": 1}, "ok")
GONE = replace(RECORD, abandoned=True)


def test_a_committed_call_with_an_effect_is_recorded() -> None:
    assert recorded_effects([CALL, PAID]) == [RECORD]
    assert recorded_effects([CALL, {**PAID, "outcome": "unknown"}]) == [replace(RECORD, unknown=True)]
    assert recorded_effects([CALL, {key: value for key, value in PAID.items() if key != "effect_key"}]) == []


def test_an_effect_that_the_conversation_no_longer_shows_is_kept_once() -> None:
    (message,) = abandoned_effects([CALL, PAID], 0)
    assert recorded_effects([message]) == [GONE]
    assert abandoned_effects([CALL, PAID], 2) == []
    (once,) = effects_message([RECORD, GONE, RECORD])
    assert len(once["effects"]) == 1


@pytest.mark.parametrize(
    ("records", "arguments", "key", "expected"),
    [
        ([], {"n": 1}, "k", None),
        ([RECORD], {}, "k", RECORD),
        ([RECORD], {}, "other", None),
        ([RECORD], {"n": 1}, None, None),  # without a key, only what was abandoned counts
        ([GONE], {"n": 1}, None, GONE),
        ([GONE], {"n": 2}, None, None),
        ([GONE, RECORD], {"n": 1}, None, None),  # the conversation shows it again
        ([RECORD, replace(RECORD, undone=True)], {}, "k", None),  # undone, so it may happen again
        ([RECORD, replace(RECORD, undone=True, unknown=True)], {}, "k", replace(RECORD, undone=True, unknown=True)),
    ],
)
def test_a_call_repeats_an_effect_with_its_key_or_an_abandoned_one_with_its_arguments(
    records: list[EffectRecord], arguments: dict[str, Any], key: str | None, expected: EffectRecord | None
) -> None:
    assert find_record(records, "pay", arguments, key) == expected
