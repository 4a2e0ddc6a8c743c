"""The step commit as one server-side function: the shortcut for the write that every step of every agent makes.

`step_commit.sql` holds the function, this file turns a commit that `is_step_commit` into its arguments. What it
does is exactly what the general way does (`sql/commit_sql.py`), and the conformance kit compares both with one model.

All texts but the messages travel as one. asyncpg asks every element of a list through abstract classes what it is, and
the server takes every argument by itself: as one text, a commit costs both of them less, as long as it is short.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Any

from ...codec import escape_text
from ...stores.state.commit import LIST, Applied, Commit
from ..sql import rows
from ..sql.queries import with_prefix
from .dialect import qualified
from .functions import Prepares

_FUNCTION = re.compile(r"__agents_(?:step_commit|refuse)(?=\()")
_ARGUMENTS = 13
_BETWEEN = "\x1e"
"""Ids have no control characters, and JSON and `escape_text` escape them: no text contains it."""
_BEFORE_ALL = "#"
_PLAIN = (None,) * 7
_MAX_ENDS = 10_000

Ends = dict[tuple[str, str], int]
"""By session and key, the index of the last item when this store last appended to that list."""


class StepCommit:
    """The function, for one schema and prefix."""

    def __init__(self, *, schema: str | None, prefix: str) -> None:
        text = files(__package__).joinpath("step_commit.sql").read_text(encoding="utf-8")
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        named = _FUNCTION.sub(lambda found: f"{found[0]}_{digest}", text)
        self.function_names: tuple[str, ...] = tuple(
            with_prefix(f"__agents_{label}_{digest}", prefix) for label in ("step_commit", "refuse")
        )
        self.name = self.function_names[0]
        self._text = qualified(with_prefix(named, prefix), schema)
        marks = ", ".join(f"${place}" for place in range(1, _ARGUMENTS + 1))
        self.call = f"SELECT {qualified(self.name, schema)}({marks})"

    async def create(self, connection: Prepares) -> None:
        """Create the function; the caller has locked out others who might do the same."""
        await connection.execute(self._text)


def arguments(commit: Commit, ends: Ends, max_characters: int) -> tuple[Any, ...] | None:
    """A step commit as the function takes it; None if it has to go the general way."""
    state, checkpoint, promote = commit.state, commit.checkpoint, commit.promote
    assert state is not None
    assert checkpoint is not None
    if not commit.custom.set_cells.keys() <= commit.custom.expected.keys():
        return None
    agent_type, stream_id, parent, root, status, expires_at, user_id, tags, metadata = rows.label_columns(state)
    step_count, resume_count, output, error, failure_reason, *context = content = rows.content_columns(state)
    tokens = [token for _, token in promote.rows] if promote is not None else []
    cells = _cells(commit)
    items = _items(commit, ends)
    texts = [
        commit.session_id,
        checkpoint.step_id,
        "" if promote is None else promote.step_id,
        checkpoint.checkpoint_id,
        checkpoint.state,
        agent_type,
        stream_id,
        parent or "",
        root or "",
        status,
        user_id or "",
        tags,
        metadata,
        output or "",
        *[text or "" for text in context],
        *tokens,
        *cells,
        *items,
    ]
    packed = _BETWEEN.join(texts)  # type: ignore[arg-type]  # all of these columns are texts
    if packed.count(_BETWEEN) != len(texts) - 1 or len(packed) > max_characters:
        return None
    return (
        commit.expected_version,
        commit.now,
        step_count,
        resume_count,
        checkpoint.stream_sequence,
        expires_at,
        content[2:] == _PLAIN,
        error,
        failure_reason,
        commit.messages,
        len(tokens),
        len(cells) // 4,
        packed,
    )


def applied(commit: Commit, answer: list[int], ends: Ends) -> Applied:
    """What the function answers; the new ends of lists are noted."""
    if len(answer) > 2:
        if len(ends) > _MAX_ENDS:
            ends.clear()
        last = iter(answer[2:])
        for key, texts in commit.custom.append.items():
            if texts:
                ends[commit.session_id, key] = next(last)
    state = commit.state
    assert state is not None
    return Applied(answer[0], answer[1], state.step_count, state.resume_count)


def _cells(commit: Commit) -> list[str]:
    """Cells to look at or to change, all of them seen before: key, slot, the text seen, the new one."""
    custom = commit.custom
    set_keys, set_cells, append, expected = custom.set_keys, custom.set_cells, custom.append, custom.expected
    cells: list[str] = []
    for name, seen in expected.items():
        key, slot = name
        if slot is None and key in set_keys:  # always among those expected, as `is_one_cell` says
            text = set_keys[key].text
        elif slot is None and seen == LIST and append.get(key):
            continue  # whoever finds an item under that key knows that it is a list
        else:
            text = set_cells.get(name, "")
        cells += (escape_text(key), rows.slot_text(slot), seen or "", "" if text == seen else text)
    return cells


def _items(commit: Commit, ends: Ends) -> list[str]:
    """Items to append: key, a slot near the end of the list, text."""
    items: list[str] = []
    for key, texts in commit.custom.append.items():
        end = ends.get((commit.session_id, key))
        near = _BEFORE_ALL if end is None else rows.slot_text(end)
        name = escape_text(key)
        for text in texts:
            items += (name, near, text)
    return items
