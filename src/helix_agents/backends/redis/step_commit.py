"""The short way of the commit that ends a step: the words of `step_commit.lua`, which say the same as the program.

Such a commit is what a run consists of, and it nearly always finds what it believes. So it is sent as flat words to a
script that knows this one shape, and anything else (a guard that does not hold, a deadline that moves, lists that are
replaced) is left to the program of `compile.py`, which knows every case.
"""

from __future__ import annotations

from typing import NamedTuple

from ...stores.state.commit import LIST, OBJECT, CellName, Commit, CustomChanges
from .compile import checkpoint_facts, promoted_rows, staged_field, status_word
from .connection import Word
from .keys import SessionKeys, digest_of, field_name, short_checkpoint_id
from .session_hash import to_hash

MAX_WORDS = 2000
"""As many messages, items and cells; many more do not fit on Lua's stack."""

MAX_ROWS = 100
"""As many staged rows: the script compares each with each."""

ANYTHING = "?"
"""What a cell may hold when the writer does not care; no JSON text looks like this."""


class StepCommit(NamedTuple):
    """What is sent to the script."""

    keys: list[str]
    words: list[Word]


class _Custom(NamedTuple):
    """The parts of the words that are about custom state, and the keys of lists that grow."""

    cells: list[str]
    expected: list[str]
    sets: list[str]
    appends: list[Word]
    lists: list[str]


def short_way(commit: Commit, keys: SessionKeys, ttl_ms: int) -> StepCommit | None:
    """The words of a step commit; None for a commit of another shape."""
    state, row, step, version = commit.state, commit.checkpoint, commit.promote, commit.expected_version
    if state is None or row is None or step is None or not commit.only_ends_a_step:
        return None
    if state.error is not None or state.failure_reason is not None or state.interrupt_context is not None:
        return None
    custom = _custom(commit.custom, keys)
    rows = promoted_rows(step)
    if custom is None or len(rows) > MAX_ROWS:
        return None
    if len(custom.cells) + len(custom.appends) + len(commit.messages) > MAX_WORDS:
        return None
    fields: list[Word] = ["updated_at", commit.now]
    for pair in to_hash(state, row.state)[0].items():
        fields += pair
    words: list[Word] = [
        "" if version is None else version,
        digest_of(state),
        status_word(state.status),
        ttl_ms,
        staged_field(step.step_id),
        short_checkpoint_id(commit.session_id, row.checkpoint_id),
        state.status,
        checkpoint_facts(commit, row),
        len(fields),
        len(rows),
        len(custom.cells),
        len(custom.sets),
        len(custom.appends),
    ]
    for part in (fields, rows, custom.cells, custom.expected, custom.sets, custom.appends, commit.messages):
        words += part
    return StepCommit([*keys.of_step_commit, *custom.lists], words)


def _custom(changes: CustomChanges, keys: SessionKeys) -> _Custom | None:
    """Changes of custom state, if they are plain values of top-level keys and appends; the cells to set come first."""
    if changes.replace_all or changes.drop_keys or changes.set_cells or changes.drop_cells:
        return None
    custom = _Custom([], [], [], [], [])
    cells, expected, sets, appends, lists = custom
    believed = changes.expected
    for key, (text, _, _) in changes.set_keys.items():
        if text in (LIST, OBJECT):
            return None
        field = field_name(key)
        cells.append(field)
        expected.append(believed.get(CellName(key), ANYTHING) or "")
        sets += (field, text)
    for (key, slot), believed_text in believed.items():
        if slot is not None:
            return None
        if key not in changes.set_keys:
            cells.append(field_name(key))
            expected.append(believed_text or "")
    for key, items in changes.append.items():
        if items:
            field = field_name(key)
            lists.append(keys.list_of(field))
            appends += (field, len(items), *items)
    return custom
