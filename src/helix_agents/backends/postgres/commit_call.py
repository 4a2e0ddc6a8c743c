"""A commit as the call of one server-side function, which takes any commit in one round trip.

`commit.sql` holds the function with its parts and says what its texts mean; this file puts a `Commit` into these texts.
They change together.

All texts but the messages are sent as one string, because asyncpg checks every element of a list against abstract
classes. If a text contains the separator, as only ids chosen by callers can, they are sent as a list.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from ...codec import escape_text
from ...stores.state.commit import (
    LIST,
    NO_BRANCHES,
    NO_CHANGES,
    OBJECT,
    Applied,
    BranchChanges,
    CellName,
    Commit,
    CustomChanges,
    Identity,
    KeyContent,
    Slot,
)
from ..sql_shared.driver import Value
from ..sql_shared.queries import with_prefix
from ..sql_shared.state import rows
from ..sql_shared.state.branch_statements import shelf_of
from .dialect import qualified
from .functions import Prepares

Text = str | None

_BETWEEN = "\x1e"
_NULL = "\x1f"
_STANDS_FOR = "\x1d"
"""JSON and `escape_text` escape control characters, and ids have none: no text contains any of these."""

MAX_INDEXED_BYTES = 600
"""The longest key or slot stored as is: an index entry holds at most 2,704 bytes for session id, key and slot."""


class CommitFunction:
    """The function and its parts, for one schema and prefix."""

    def __init__(self, *, schema: str | None, prefix: str) -> None:
        text = files(__package__).joinpath("commit.sql").read_text(encoding="utf-8")
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        parts = [f"__agents_commit_{digest}{part}" for part in re.findall(r"FUNCTION __agents_commit(\w*)\(", text)]
        self.function_names: tuple[str, ...] = tuple(with_prefix(part, prefix) for part in parts)
        self.name = self.function_names[-1]
        named = re.sub(r"__agents_commit(\w*)\(", rf"__agents_commit_{digest}\1(", text)
        self._text = qualified(with_prefix(named, prefix), schema)
        self._schema = schema
        self._qualified = qualified(self.name, schema)
        listed = text.partition("FUNCTION __agents_commit(")[2].partition(") RETURNS")[0]
        self.parameters = [" ".join(each.split()) for each in listed.split(",")]
        """The parameters with their types, as the function declares them; the texts come last."""

    def call(self, *, as_list: bool, temporary: bool) -> str:
        """Return the statement that calls it, with its texts as one or as a list."""
        last = len(self.parameters)
        texts = f"${last}" if as_list else f"string_to_array(${last}, chr({ord(_BETWEEN)}), chr({ord(_NULL)}))"
        name = f"pg_temp.{self.name}" if temporary else self._qualified
        given = ", ".join(f"${number}" for number in range(1, last))
        return f"SELECT {name}({given}, {texts})"

    async def create(self, connection: Prepares, *, temporary: bool = False) -> None:
        """Create the function and its parts. The caller holds the lock that keeps other processes from doing the same.

        `temporary`: for this connection only, which needs no right in the schema.
        """
        text = self._text
        for name in self.function_names if temporary else ():
            text = text.replace(f"{qualified(name, self._schema)}(", f"pg_temp.{name}(")
        await connection.execute(text)


def arguments(commit: Commit, texts: Sequence[Text]) -> tuple[tuple[Any, ...], bool]:
    """Return the arguments of the function, and whether the texts are passed as a list."""
    state = commit.state
    packed = _BETWEEN.join([_NULL if each is None else each for each in texts])
    as_list = packed.count(_BETWEEN) != len(texts) - 1
    return (
        commit.session_id,
        commit.now,
        *rows.owner_columns(commit.owner),
        commit.expected_version,
        state.owner_epoch if state is not None and commit.create else commit.new_epoch,
        int(commit.bump_version),
        int(commit.checkpoint is not None),
        commit.add_steps if state is None else state.step_count,
        commit.add_resumes if state is None else state.resume_count,
        None if state is None else state.expires_at,
        commit.due_at,
        commit.messages,
        list(texts) if as_list else packed,
    ), as_list


def texts_of(commit: Commit, want: Iterable[CellName]) -> list[Text]:
    """Return the commit as the function's texts: the changes of the session's row, the guards, and all dependent
    rows."""
    texts: list[Text] = _row(commit)
    if (copy := commit.copy) is not None:
        texts += _texts("copy", *copy)
    if commit.allowed_from:
        texts += ("from", "|".join(["", *commit.allowed_from, ""]))
    if commit.keep_messages is not None:
        texts += ("keep", str(commit.keep_messages))
    if commit.branches is not NO_BRANCHES:
        texts += _branches(commit.session_id, commit.branches)
    if commit.promote is not None:
        tokens = [token for _, _, token in commit.promote.rows]
        texts += ("promote", commit.promote.step_id, str(len(tokens)), *tokens)
    if commit.custom is not NO_CHANGES:
        texts += _CellTexts(commit.custom).texts
    if commit.checkpoint is not None:
        checkpoint_id, step_id, step_count, sequence, kind, fields = commit.checkpoint
        status = commit.status or (commit.state.status if commit.state is not None else None)
        texts += ("checkpoint", checkpoint_id, step_id, str(step_count), str(sequence), kind, fields, status)
    else:
        texts += _without_a_step(commit)
    if commit.run is not None:
        texts += _texts("run", commit.run.run_id, *rows.run_columns(commit.run))
    if (change := commit.change_run) is not None:
        columns = rows.run_changes(change.changes, change.wanted)
        texts += _texts("change", change.seen.run_id, change.seen.status, change.seen.lease_until, *columns)
    for name in want:
        texts += ("want", *place_of(name))
    return texts


def place_of(name: CellName) -> tuple[str, str]:
    """Return the columns of a cell: key and slot, or their digests if they are too long for the index."""
    return _place(escape_text(name.key)), _place(rows.slot_text(name.slot))


def _place(name: str) -> str:
    if len(name) <= MAX_INDEXED_BYTES // 4 or len(name.encode()) <= MAX_INDEXED_BYTES:
        return name
    return f"{name[:64]}{_STANDS_FOR}{hashlib.sha256(name.encode()).hexdigest()}"


def _without_a_step(commit: Commit) -> list[Text]:
    """Return the texts that a commit which ends a step never has."""
    texts: list[Text] = []
    if commit.status is not None:
        texts += ("status", commit.status)
    if commit.restore_number is not None:
        texts += ("restore", str(commit.restore_number))
    if commit.discard_all or commit.discard_step is not None:
        texts += ("discard", None if commit.discard_all else commit.discard_step)
    if commit.stage is not None:
        step_id, staged = commit.stage
        for row in staged:
            texts += _texts("stage", step_id, *row)
    for ref in commit.refs:
        texts += _texts("ref", *rows.ref_columns(ref))
    if commit.clear_flag:
        texts.append("clear flag")
    if commit.flag is not None:
        texts += _texts("flag", *rows.flag_columns(commit.flag))
    return texts


def _branches(session_id: str, changes: BranchChanges) -> list[Text]:
    texts: list[Text] = []
    for number, message_count, shelved, returned in changes.moves:
        texts += ("shelve", shelf_of(session_id, shelved), str(number), str(message_count))
        if returned is not None:
            texts += ("unshelve", shelf_of(session_id, returned))
    for branch_id, about, state in changes.rows:
        texts += ("branch", branch_id, shelf_of(session_id, branch_id), about, state)
    for branch_id in changes.dropped:
        texts += ("drop branch", branch_id, shelf_of(session_id, branch_id))
    return texts


def applied(answer: str, want: Iterable[CellName]) -> tuple[Applied, dict[CellName, Text]]:
    """Return what the function returns."""
    counters, *texts = answer.split(_BETWEEN)
    cells = {name: None if text == _NULL else text for name, text in zip(want, texts, strict=True)}
    return Applied(*map(int, counters.split(","))), cells


def _row(commit: Commit) -> list[Text]:
    state = commit.state
    if state is None:
        return ["touch"]
    stream_id, parent, root, status, _, _, tags, metadata = rows.label_columns(state, None)
    _, _, *content = rows.content_columns(state)
    kind = "create" if commit.create else "state" if commit.restore_number is None else "restore"
    incarnation, created_at, agent_type, user_id = Identity.of(state)
    identity = [incarnation, None if created_at is None else str(created_at), agent_type, user_id]
    labels = [stream_id, parent, root, status, tags, metadata]
    return [kind, *identity, *labels, *content, rows.origin_column(state)]  # type: ignore[list-item]  # texts and NULL, as the columns are


class _CellTexts:
    """Builds the texts that guard and change custom state. A cell that is both guarded and changed appears once."""

    def __init__(self, custom: CustomChanges) -> None:
        self.texts: list[Text] = []
        if custom.expected:
            self._expect(custom)
        if custom.set_keys or custom.drop_keys or custom.replace_all:
            self._set_keys(custom)
        for name in custom.set_cells.keys() - custom.expected.keys():
            self._cell("put", name, None, custom.set_cells[name])
        for name in custom.drop_cells:
            if name not in custom.expected:
                self._cell("put", name, None, None)
        for key, items in custom.append.items():
            if items:
                self.texts += ("append", self._column(escape_text(key)), str(len(items)), *items)

    def _expect(self, custom: CustomChanges) -> None:
        expected, set_keys, set_cells = custom.expected, custom.set_keys, custom.set_cells
        # A commit that finds something below a key knows what the key holds.
        found = {key for (key, slot), text in expected.items() if slot is not None and text is not None}
        for name, seen in expected.items():
            key, slot = name
            if name in set_cells:
                self._cell("set", name, seen, set_cells[name])
            elif slot is None and _is_plain(seen) and key in set_keys and _is_plain(set_keys[key].text):
                self._cell("set", name, seen, set_keys[key].text)
            elif name in custom.drop_cells:
                self._cell("set", name, seen, None)
            elif slot is not None or not (key in found or (seen == LIST and custom.append.get(key))):
                self._cell("expect", name, seen, None)

    def _set_keys(self, custom: CustomChanges) -> None:
        whole: dict[str, KeyContent] = {}
        for key, content in custom.set_keys.items():
            name = CellName(key)
            if custom.replace_all or not _is_plain(content.text):
                whole[key] = content
            elif not _is_plain(custom.expected.get(name)):
                self._cell("key", name, None, content.text)
        for key in custom.drop_keys:
            self._cell("key", CellName(key), None, None)
        if custom.replace_all or whole:
            self._whole(whole, "all" if custom.replace_all else "keys")

    def _whole(self, keys: dict[str, KeyContent], word: str) -> None:
        """Add all cells of these keys, column by column."""
        names: list[str] = []
        slots: list[str] = []
        texts: list[str] = []
        for key, content in keys.items():
            below: list[tuple[Slot, str]] = [(None, content.text), *enumerate(content.items), *content.members]
            names += [self._column(escape_text(key))] * len(below)
            for slot, text in below:
                slots.append(self._column(rows.slot_text(slot)))
                texts.append(text)
        self.texts += (word, str(len(names)), *names, *slots, *texts)

    def _cell(self, word: str, name: CellName, seen: Text, text: Text) -> None:
        key, slot = name
        columns = self._column(escape_text(key)), self._column(rows.slot_text(slot))
        self.texts += (word, *columns, seen, text)

    def _column(self, name: str) -> str:
        """Return the value that the index holds, and record the original if that is a digest."""
        place = _place(name)
        if place is not name:
            self.texts += ("name", place, name)
        return place


def _is_plain(text: Text) -> bool:
    """Return whether a key holds a single value and has no cells below it."""
    return text is not None and text != LIST and text != OBJECT


def _texts(*values: Value) -> list[Text]:
    return [None if value is None else str(value) for value in values]
