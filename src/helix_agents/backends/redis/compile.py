"""From a `Commit` to a program: guards in the order of the contract, effects in the order of the reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...codec import encode
from ...stores.state.commit import LIST, OBJECT, CellName, CheckpointRow, Commit, CustomChanges, KeyContent, StagedStep
from .history import Entry, add_take_back
from .keys import SessionKeys, digest_of, field_name, short_checkpoint_id
from .program import ABSENT, Program
from .session_hash import struct_text, to_hash

MAX_INDEX = 2**53


class Rewind:
    """What a restore takes back, as it was read; the write is refused if any of it has changed since."""

    def __init__(
        self, *, restores: str | None, undo_length: int, kept_entries: int, entries: Sequence[Entry],
        checkpoint_count: int, dropped_ids: Sequence[str],
    ) -> None:  # fmt: skip
        self.restores = restores
        self.undo_length = undo_length
        self.kept_entries = kept_entries
        self.entries = entries
        self.checkpoint_count = checkpoint_count
        self.dropped_ids = dropped_ids


def compiled(
    commit: Commit,
    keys: SessionKeys,
    *,
    ttl_ms: int,
    unique: str,
    want: Iterable[CellName] = (),
    announced: bool = False,
    run_taken: bool = False,
    rewind: Rewind | None = None,
) -> Program:
    """The program of a commit.

    `announced`: the index knows where this commit will put the session, so it need not refuse. `run_taken`: the run id
    belongs to another session, which is known already but has its place among the guards. `unique` names what this
    commit puts on the shelf.
    """
    program = Program.of_session(keys, ttl_ms)
    _add_guards(program, commit, keys, announced=announced, run_taken=run_taken, rewind=rewind)
    _add_fields(program, commit, announced=announced)
    if commit.keep_messages is not None:
        program.effect("cut", program.key(keys.messages), commit.keep_messages)
        if rewind is None:  # else the checkpoints that counted more go
            program.effect("recount", commit.keep_messages)
    if commit.messages:
        program.effect("messages", *commit.messages)
    if rewind is not None:
        _add_rewind(program, commit, keys, rewind)
    if not commit.custom.is_empty:
        add_custom_changes(program, commit.custom, keys, unique)
    _add_staging(program, commit, keys)
    if commit.checkpoint is not None:
        _add_checkpoint(program, commit, keys)
    if commit.run is not None:
        text = struct_text(commit.run)
        program.effect("run", program.key(keys.run_ids), program.key(keys.runs), commit.run.run_id, text)
    for ref in commit.refs:
        program.effect("ref", program.key(keys.ref_ids), program.key(keys.refs), ref.sub_session_id, struct_text(ref))
    for name in want:
        add_wanted(program, keys, name)
    return program


# -- guards


def _add_guards(
    program: Program, commit: Commit, keys: SessionKeys, *, announced: bool, run_taken: bool, rewind: Rewind | None
) -> None:
    program.require_session("exists" if commit.create else "missing", exists=not commit.create)
    if commit.create:
        return
    if commit.expected_version is not None:
        program.require_field("version", str(commit.expected_version), "version")
    if commit.promote is not None:
        program.require_staged("staged", promoted_rows(commit.promote), staged_field(commit.promote.step_id))
    for name, text in commit.custom.expected.items():
        _add_cell_guard(program, keys, name, text)
    if commit.run is not None:
        program.require("run", "impossible" if run_taken else 0, "HEXISTS", keys.runs, commit.run.run_id)
    if commit.restore_number is not None and rewind is None:
        program.require_session("checkpoint", exists=False)
    if rewind is not None:
        program.require_field("rewind", ABSENT if rewind.restores is None else rewind.restores, "restores")
        program.require("rewind", rewind.undo_length, "LLEN", keys.undo)
        program.require("rewind", rewind.checkpoint_count, "LLEN", keys.checkpoints)
    if not announced:
        _add_index_guards(program, commit)


def _add_cell_guard(program: Program, keys: SessionKeys, name: CellName, text: str | None) -> None:
    expected = ABSENT if text is None else text
    if name.slot is None:
        program.require_cell("cells", expected, field_name(name.key))
        return
    command = cell_command(keys, name)
    if command is not None:
        program.require("cells", expected, *command)
    elif text is not None:
        program.require_session("cells", exists=False)


def staged_field(*names: str) -> str:
    """How a staged row is called: step, tool call and token, or the beginning of that."""
    return "\x1f".join(names) + "\x1f"


def promoted_rows(step: StagedStep) -> list[str]:
    """The names of the staged rows of a step."""
    return [staged_field(step.step_id, *row) for row in dict.fromkeys(step.rows)]


def _add_index_guards(program: Program, commit: Commit) -> None:
    status = commit.status or (commit.state.status if commit.state is not None else None)
    if commit.state is not None:
        program.require_field("index", digest_of(commit.state), "labels")
    if status is not None:
        program.require_field_with("index", status_word(status), "statuses")


def status_word(status: str) -> str:
    """A status as it stands among those that the index knows of a session."""
    return f"|{status}|"


# -- fields


def _add_fields(program: Program, commit: Commit, *, announced: bool) -> None:
    kept: dict[str, Any] = {}
    gone: list[str] = []
    state = commit.state
    if state is not None:
        text = commit.checkpoint.state if commit.checkpoint is not None else None
        kept, gone = to_hash(state, text)
        if announced:
            kept["labels"] = digest_of(state)
        if commit.create:
            kept |= {"version": state.version, "created_at": state.created_at}
            gone = []
    if commit.status is not None:
        kept["status"] = commit.status
    kept["updated_at"] = commit.now
    if commit.flag is not None:
        kept["interrupt_flag"] = struct_text(commit.flag)
    elif commit.clear_flag:
        gone.append("interrupt_flag")
    for field, value in kept.items():
        program.set_field(field, value)
    for field in gone:
        program.drop_field(field)
    for field, amount in (
        ("version", int(commit.bump_version)),
        ("step_count", commit.add_steps),
        ("resume_count", commit.add_resumes),
    ):
        if amount:
            program.add_to_field(field, amount)
    if announced and "status" in kept:
        program.mark_status(status_word(kept["status"]))


# -- custom state


def add_custom_changes(program: Program, changes: CustomChanges, keys: SessionKeys, unique: str) -> None:
    """The effects of changing custom state."""
    if changes.replace_all:
        program.effect("only", [field_name(key) for key in changes.set_keys], f"{unique}.all")
    for place, key in enumerate((*changes.drop_keys, *changes.set_keys)):
        field, shelf = field_name(key), f"{unique}.{place}"
        program.know_cell(field)
        if key in changes.set_keys:
            word, value = _content(changes.set_keys[key])
            program.effect(word, field, shelf, value)
        else:
            program.effect("drop", field, shelf)
    for name, text in changes.set_cells.items():
        field = field_name(name.key)
        if isinstance(name.slot, str):
            program.effect("member", field, program.key(keys.object_of(field)), field_name(name.slot), text)
        else:
            program.effect("item", field, program.key(keys.list_of(field)), name.slot, text)
    for name in changes.drop_cells:
        field = field_name(name.key)
        program.effect("unmember", field, program.key(keys.object_of(field)), field_name(str(name.slot)))
    for key, texts in changes.append.items():
        if texts:
            field = field_name(key)
            program.effect("append", field, program.key(keys.list_of(field)), list(texts))


def _content(content: KeyContent) -> tuple[str, Any]:
    if content.text == LIST:
        return "list", list(content.items)
    if content.text == OBJECT:
        return "object", [word for name, text in content.members for word in (field_name(name), text)]
    return "text", content.text


def cell_command(keys: SessionKeys, name: CellName) -> tuple[Any, ...] | None:
    """The command that reads a cell; None for a cell that cannot be."""
    field = field_name(name.key)
    if name.slot is None:
        return "HGET", keys.custom, field
    if isinstance(name.slot, str):
        return "HGET", keys.object_of(field), field_name(name.slot)
    if 0 <= name.slot < MAX_INDEX:
        return "LINDEX", keys.list_of(field), name.slot
    return None


def add_wanted(program: Program, keys: SessionKeys, name: CellName) -> None:
    """Answer a cell along with the write; one that cannot be is asked for as a field that is not there."""
    command = cell_command(keys, name)
    program.want(*(command or ("HGET", keys.main, "")))


def _add_rewind(program: Program, commit: Commit, keys: SessionKeys, rewind: Rewind) -> None:
    add_take_back(program, keys, rewind.entries)
    if rewind.kept_entries:
        program.do("LTRIM", keys.undo, 0, rewind.kept_entries - 1)
    else:
        program.do("DEL", keys.undo)
    assert commit.restore_number is not None
    program.do("LTRIM", keys.checkpoints, 0, commit.restore_number - 1)
    for dropped in rewind.dropped_ids:
        program.do("HDEL", keys.checkpoint_ids, dropped)
    program.add_to_field("restores", 1)


# -- the rest


def _add_staging(program: Program, commit: Commit, keys: SessionKeys) -> None:
    if commit.discard_all:
        program.effect("unstage_all")
    elif commit.discard_step is not None:
        program.effect("unstage", staged_field(commit.discard_step))
    if commit.promote is not None and commit.promote.rows:
        program.do("HDEL", keys.staging, *promoted_rows(commit.promote))
    if commit.stage is not None:
        step_id, rows = commit.stage
        for row in rows:
            text = encode([row.tool_call_id, row.position, row.writes, row.result, row.token, row.staged_at])
            program.effect("stage", staged_field(step_id, row.tool_call_id), staged_field(row.token), text)


def _add_checkpoint(program: Program, commit: Commit, keys: SessionKeys) -> None:
    row = commit.checkpoint
    assert row is not None
    short = short_checkpoint_id(commit.session_id, row.checkpoint_id)
    program.effect("checkpoint", short, checkpoint_facts(commit, row), program.key(keys.checkpoint_ids))


def checkpoint_facts(commit: Commit, row: CheckpointRow) -> str:
    """What the writer knows of a checkpoint; the write puts the rest before it."""
    facts = encode([row.checkpoint_id, row.step_id, row.step_count, row.stream_sequence, commit.now])
    return f"{facts}\x1f{row.state}"
