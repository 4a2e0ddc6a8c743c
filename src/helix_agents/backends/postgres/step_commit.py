"""The step commit as one server-side function: the shortcut for the write that every step of every agent makes.

`step_commit.sql` holds the function, this file turns a commit that `is_step_commit` into its arguments. What it
does is exactly what the general way does (`sql/commit_sql.py`), and the conformance kit compares both with one model.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any

from ...codec import escape_text
from ...stores.commit import Applied, CellName, Commit
from ..sql import rows
from ..sql.queries import with_prefix
from .functions import Prepares
from .wording import qualified

_NAME = "__agents_step_commit"
_ARGUMENTS = 37


class StepCommit:
    """The function, for one schema and prefix."""

    def __init__(self, *, schema: str | None, prefix: str) -> None:
        text = files(__package__).joinpath("step_commit.sql").read_text(encoding="utf-8")
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        self.name = with_prefix(f"{_NAME}_{digest}", prefix)
        self.function_names: tuple[str, ...] = (self.name,)
        self._text = qualified(with_prefix(text.replace(f"{_NAME}(", f"{_NAME}_{digest}("), prefix), schema)
        marks = ", ".join(f"${place}" for place in range(1, _ARGUMENTS + 1))
        self.call = f"SELECT {qualified(self.name, schema)}({marks})"

    async def create(self, connection: Prepares) -> None:
        """Create the function; the caller has locked out others who might do the same."""
        await connection.execute(self._text)


def arguments(commit: Commit) -> list[Any]:
    """A step commit as the function takes it."""
    custom, state, checkpoint, promote = commit.custom, commit.state, commit.checkpoint, commit.promote
    assert state is not None
    assert checkpoint is not None
    put = dict(custom.set_cells)
    put |= {CellName(key): content.text for key, content in custom.set_keys.items()}
    return [
        commit.session_id,
        commit.expected_version,
        commit.now,
        *rows.label_columns(state),
        *rows.content_columns(state),
        commit.messages,
        promote and promote.step_id,
        [token for _, token in promote.rows] if promote else [],
        *_columns(custom.expected),
        *_columns(put),
        [escape_text(key) for key, texts in custom.append.items() for _ in texts],
        [place for texts in custom.append.values() for place in range(1, len(texts) + 1)],
        [text for texts in custom.append.values() for text in texts],
        checkpoint.checkpoint_id,
        checkpoint.step_id,
        checkpoint.stream_sequence,
        checkpoint.state,
    ]


def applied(answer: list[int]) -> Applied:
    """What the function answers."""
    return Applied(*answer)


def _columns(cells: dict[CellName, Any]) -> tuple[list[str], list[str], list[str | None]]:
    names = [*cells]
    return (
        [escape_text(name.key) for name in names],
        [rows.slot_text(name.slot) for name in names],
        [cells[name] for name in names],
    )
