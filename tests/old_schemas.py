"""A session as earlier versions of the schema held it: with history in rows that died and, from 6 on, in checkpoints.

Raw rows, because the code that wrote them is gone. Both dialects take them as they are.
"""

from __future__ import annotations

from typing import Any

from helix_agents import InterruptFlag, StateStore

LEDGER = "CREATE TABLE __agents_migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
SESSION = "old"

STATES: dict[int, dict[str, Any]] = {
    1: {"n": 1, "list": ["a", "b"], "gone": {"x": 1}},
    2: {"n": 2, "list": ["a", "c"]},
    3: {"n": 3, "list": ["a"], "late": True},
}
"""Custom state as of each checkpoint."""

KINDS = {1: "turn", 2: "aside", 3: "step"}
"""What each checkpoint records; schemas up to 20 said so in a suffix of the step's id."""

PRESENT: dict[str, Any] = {"n": 4, "list": ["a"], "late": True}

_FIELDS = f'{{"session_id":"{SESSION}","agent_type":"agent","stream_id":"{SESSION}"}}'

_PRESENT_CELLS = [
    ("n", "", "4", 3),
    ("list", "", "[", 0),
    ("list", "#0000000000", '"a"', 0),
    ("late", "", "true", 2),
]

_OVERWRITTEN_BY_2 = [
    ("n", "", "1", 0),
    ("list", "#0000000001", '"b"', 0),
    ("gone", "", "{", 0),
    ("gone", ".x", "1", 0),
]
_OVERWRITTEN_BY_3 = [("n", "", "2", 1), ("list", "#0000000001", '"c"', 1)]
_OVERWRITTEN_WITHOUT_CHECKPOINT = [("n", "", "3", 2)]


def inserts(version: int) -> list[str]:
    """Statements that fill a schema of that version, from 1 to the one before cells lost their past."""
    rows = [
        f"INSERT INTO __agents_states (session_id, agent_type, stream_id, version, checkpoint_count, created_at, "
        f"updated_at) VALUES ('{SESSION}', 'agent', '{SESSION}', 5, 3, 1, 5)",
        f"INSERT INTO __agents_staging (session_id, step_id, tool_call_id, position, writes, result, token, staged_at) "
        f"""VALUES ('{SESSION}', 'step', 'call', 0, '[[{{"kind":"increment","path":["n"],"by":1}}],[]]', """
        "'null', 'token', 5)",
        f"INSERT INTO __agents_staging (session_id, step_id, tool_call_id, position, writes, result, token, staged_at) "
        f"VALUES ('{SESSION}', 'step', ':answer', 0, '[[],[]]', '\"said\"', 'other', 5)",
        f"INSERT INTO __agents_interrupt_flags (session_id, reason, run_id, timestamp) "
        f"VALUES ('{SESSION}', '\x1eabort\x1eEnough.', NULL, 5)",
    ]
    rows += [_cell(cell, "NULL") for cell in _PRESENT_CELLS]
    rows += [_cell(cell, "3") for cell in _OVERWRITTEN_WITHOUT_CHECKPOINT]
    rows += [_cell(cell, "1") for cell in _OVERWRITTEN_BY_2]  # the general way, at all times
    if version >= 6:
        kept = ",".join(_as_json(cell) for cell in _OVERWRITTEN_BY_3)
        rows += [_checkpoint(1), _checkpoint(2), _checkpoint(3, f"[{kept}]")]
    else:
        rows += [_cell(cell, "2") for cell in _OVERWRITTEN_BY_3]
        rows += [_checkpoint(number) for number in STATES]
    return rows


def checkpoint_id(number: int) -> str:
    """The id of a checkpoint."""
    return f"cpv1-{SESSION}-s{number}-t{number}-aaaaaa"


async def ensure_history(store: StateStore) -> None:
    """Read, fork and restore all that the old session remembers."""
    assert await store.check_interrupt_flag(SESSION) == InterruptFlag("Enough.", None, 5, abort=True)
    staged = [(row.kind, row.tool_call_id, row.result) for row in await store.list_staged(SESSION, "step")]
    assert staged == [("answer", "", "said"), ("call", "call", None)]
    now = await store.load_state(SESSION)
    assert now is not None
    assert now.custom_state == PRESENT
    for number, expected in STATES.items():
        then = await store.get_checkpoint(SESSION, checkpoint_id(number))
        assert then is not None
        assert then.state.custom_state == expected
        assert then.kind == KINDS[number]
        fork = await store.fork_session(SESSION, f"fork-{number}", checkpoint_id=checkpoint_id(number))
        assert fork.custom_state == expected
    for number, expected in reversed(STATES.items()):
        await store.restore_checkpoint(SESSION, checkpoint_id(number))
        back = await store.load_state(SESSION)
        assert back is not None
        assert back.custom_state == expected


def _cell(cell: tuple[str, str, str, int], died: str) -> str:
    key, slot, value, born = cell
    return (
        "INSERT INTO __agents_custom_state (session_id, key, slot, value, born, died) "
        f"VALUES ('{SESSION}', '{key}', '{slot}', '{value}', {born}, {died})"
    )


def _checkpoint(number: int, overwritten: str | None = None) -> str:
    step_id = "step" if KINDS[number] == "step" else f"step-{KINDS[number]}"
    columns, values = ("", "") if overwritten is None else (", overwritten", f", '{overwritten}'")
    return (
        "INSERT INTO __agents_checkpoints (session_id, number, checkpoint_id, step_id, step_count, stream_sequence, "
        f"message_count, status, version, state, created_at{columns}) VALUES ('{SESSION}', {number}, "
        f"'{checkpoint_id(number)}', '{step_id}', {number}, 0, 0, 'active', {number}, '{_FIELDS}', {number}{values})"
    )


def _as_json(cell: tuple[str, str, str, int]) -> str:
    key, slot, value, born = cell
    escaped = value.replace('"', '\\"')
    return f'["{key}","{slot}","{escaped}",{born}]'
