"""Compile a `Commit` to a program: guards in the order of the contract, writes in the order of the reference.

All that a commit means on Redis is said here, in the few operations of `vocabulary.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....codec import encode
from ....lifecycle import SUSPENDED
from ....stores.state.commit import (
    LIST,
    NO_BRANCHES,
    OBJECT,
    CellName,
    Commit,
    CustomChanges,
    Identity,
    KeyContent,
    StagedStep,
)
from ....types import Owner, SessionState
from ..client.connection import Argument
from ..keys import SessionKeys, digest_of, field_name, short_checkpoint_id
from ..program.vocabulary import ABSENT, ANYTHING, BATCH, Program
from .carrying import Load
from .expiry import lives_until
from .history import SEPARATOR, Entry, add_take_back
from .session_hash import IDENTITY, numbered_run, run_text, struct_text, to_hash
from .shelves import Moving, add_branch_changes

MAX_INDEX = 2**53
IMPOSSIBLE = "impossible"


class Rewind(NamedTuple):
    """What a restore reverts, as it was read; the write is rejected if any of it has changed since."""

    restores: str | None
    undo_length: int
    kept_entries: int
    entries: Sequence[Entry]
    checkpoint_count: int
    dropped_ids: Sequence[str]


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
    load: Load | None = None,
    moving: Moving | None = None,
) -> Program:
    """Return the program of a commit.

    `announced`: the index already lists the session's new facets, so the program need not check that. `run_taken`: the
    run id belongs to another session; this fails in the order of the guards. `unique` names what this commit moves to
    the shelf. `load`: what the commit carries; guards of the stream come after those of the session.
    """
    program = Program.of_session(keys, ttl_ms)
    program.repeatable = commit.stage is not None  # always alone in its commit, and the same rows replace themselves
    _add_guards(program, commit, keys, announced=announced, run_taken=run_taken, rewind=rewind)
    if load is not None:
        load.put_on(program)
    _add_fields(program, commit, announced=announced)
    if commit.branches is not NO_BRANCHES:
        add_branch_changes(program, keys, commit.branches, moving)
    if commit.keep_messages is not None:
        program.op("cut", program.key(keys.messages), commit.keep_messages)
        if rewind is None:  # else the checkpoints that counted more go
            program.op("recount", commit.keep_messages)
    if commit.messages:
        program.push(keys.messages, commit.messages)
    if rewind is not None:
        _add_rewind(program, commit, keys, rewind)
    if not commit.custom.is_empty:
        _add_custom_changes(program, commit.custom, keys, unique)
    _add_staging(program, commit, keys)
    if commit.checkpoint is not None:
        row = commit.checkpoint
        before = f"{encode([row.checkpoint_id, row.step_id, row.step_count])[:-1]},"
        behind = f",{encode([commit.now, row.kind])[1:]}{SEPARATOR}{row.state}"
        short = short_checkpoint_id(commit.session_id, row.checkpoint_id)
        position = None if load is None else load.position
        program.op("checkpoint", short, before, row.stream_sequence if position is None else position, behind)
    if (change := commit.change_run) is not None:
        program.do("HSET", keys.runs, change.wanted.run_id, numbered_run(change.wanted))
    if commit.run is not None:
        lists = program.key(keys.run_ids), program.key(keys.runs)
        program.op("run", *lists, commit.run.run_id, run_text(commit.run), commit.run.turn)
    for ref in commit.refs:
        program.op("ref", program.key(keys.ref_ids), program.key(keys.refs), ref.sub_session_id, struct_text(ref))
    if commit.state is None:
        finish(program)
    else:
        finish(program, lives_until(commit.state, commit.now), shrink=commit.state.status not in SUSPENDED)
    for name in want:
        # A cell that cannot be is asked for as a field that is not there.
        program.answer(*(cell_command(keys, name) or ("HGET", keys.main, "")))
    return program


def finish(program: Program, expires_at: Argument = "", *, shrink: bool = False) -> None:
    """Add the operations that end every write to a session: its keys expire together.

    `shrink`: that may be earlier than an earlier write said.
    """
    program.op("deadline", expires_at, "1" if shrink else "")


# -- guards


def _add_guards(
    program: Program, commit: Commit, keys: SessionKeys, *, announced: bool, run_taken: bool, rewind: Rewind | None
) -> None:
    if commit.create:
        program.require_field("exists", "absent", "", "version")
        if commit.run is not None and run_taken:
            program.require("run", IMPOSSIBLE, "HEXISTS", keys.runs, commit.run.run_id)
        return
    require_session(program, commit.owner, commit.expected_version)
    if commit.new_epoch is not None:
        program.require_field("epoch", "below", commit.new_epoch, "owner_epoch")
    if commit.state is not None and commit.restore_number is None:
        _require_identity(program, commit.state)
    if commit.allowed_from:
        program.require_field("version", "among", "".join(map(status_word, commit.allowed_from)), "status")
    if commit.promote is not None:
        beginning = staged_field(commit.promote.step_id)
        program.guard("rows", "staged", program.key(keys.staging), beginning, *promoted_rows(commit.promote))
    if not commit.custom.is_empty or commit.custom.expected:
        _add_cell_guards(program, commit.custom, keys)
    if commit.run is not None:
        program.require("run", IMPOSSIBLE if run_taken else 0, "HEXISTS", keys.runs, commit.run.run_id)
    if (change := commit.change_run) is not None:
        program.require("lease", numbered_run(change.seen), "HGET", keys.runs, change.seen.run_id)
    if commit.restore_number is not None and rewind is None:
        program.require_field("checkpoint", "absent", "", "version")
    if rewind is not None:
        program.require("rewind", ABSENT if rewind.restores is None else rewind.restores, "HGET", keys.main, "restores")
        program.require("rewind", rewind.undo_length, "LLEN", keys.undo)
        program.require("rewind", rewind.checkpoint_count, "LLEN", keys.checkpoints)
    if not announced:
        if commit.state is not None:
            program.require_field("index", "is", digest_of(commit.state), "labels")
        status = commit.status or (commit.state.status if commit.state is not None else None)
        if status is not None:
            program.require_field("index", "has", status_word(status), "statuses")


def require_session(program: Program, owner: Owner | None, version: int | None = None) -> None:
    """Require that the session exists and, as far as given, has this version and owner."""
    program.require_field("missing", "some", "", "version")
    if owner is not None:
        program.require_field("missing", "is", owner.incarnation, "incarnation")
    if version is not None:
        program.require_field("version", "is", version, "version")
    if owner is not None and owner.epoch is not None:
        program.require_field("epoch", "is", owner.epoch, "owner_epoch")


def _require_identity(program: Program, state: SessionState) -> None:
    for field, value in Identity.of(state)._asdict().items():
        if value is not None:
            program.require_field("identity", "is", value, field)
        elif field == "user_id":
            program.require_field("identity", "absent", "", field)


def _add_cell_guards(program: Program, changes: CustomChanges, keys: SessionKeys) -> None:
    """Require that cells hold what the writer read. Keys that are set or dropped are also read, for the undo log."""
    expected: dict[str, str] = {field_name(key): ANYTHING for key in (*changes.set_keys, *changes.drop_keys)}
    below: list[tuple[CellName, str | None]] = []
    for name, text in changes.expected.items():
        if name.slot is None:
            expected[field_name(name.key)] = text or ""
        else:
            below.append((name, text))
    fields = list(expected)
    for start in range(0, len(fields), BATCH):
        batch = fields[start : start + BATCH]
        program.guard("cells", program.key(keys.custom), *batch, *[expected[field] for field in batch])
    for name, text in below:
        command = cell_command(keys, name)
        if command is not None:
            program.require("cells", ABSENT if text is None else text, *command)
        elif text is not None:
            program.require_field("cells", "absent", "", "version")


def staged_field(*names: str) -> str:
    """Return the field name of a staged row: step, kind, tool call and token, or a prefix of these."""
    return "\x1f".join(names) + "\x1f"


def promoted_rows(step: StagedStep) -> list[str]:
    """Return the names of the staged rows of a step."""
    return [staged_field(step.step_id, *row) for row in dict.fromkeys(step.rows)]


def status_word(status: str) -> str:
    """Return a status in the form in which the session's index entry records it."""
    return f"|{status}|"


# -- fields


def _add_fields(program: Program, commit: Commit, *, announced: bool) -> None:
    kept: dict[str, Any] = {}
    gone: list[str] = []
    state, version, steps, resumes = commit.state, f"+{int(commit.bump_version)}", commit.add_steps, commit.add_resumes
    counts: tuple[Argument, ...] = (version, f"+{steps}", f"+{resumes}", commit.status or "")
    if state is not None:
        kept, gone = to_hash(state, commit.checkpoint.state if commit.checkpoint is not None else None)
        if announced:
            kept["labels"] = digest_of(state)
        if commit.create:
            gone, version = [], str(state.version)
            kept |= {name: value for name in IDENTITY if (value := getattr(state, name)) is not None}
            if state.forked_from is not None:
                kept["forked_from"] = struct_text(state.forked_from)
            kept["owner_epoch"] = state.owner_epoch
        counts = (version, state.step_count + steps, state.resume_count + resumes, commit.status or state.status)
    if commit.new_epoch is not None:
        kept["owner_epoch"] = commit.new_epoch
    if commit.due_at is not None:
        kept["due_at"] = commit.due_at
    elif (state is not None and not commit.create) or commit.status is not None:
        gone.append("due_at")
    if commit.flag is not None:
        kept["interrupt_flag"] = struct_text(commit.flag)
    elif commit.clear_flag:
        gone.append("interrupt_flag")
    set_fields(program, commit.now, kept, counts)
    if commit.create and state is not None:
        program.op("born", state.created_at, state.incarnation)
    if gone:
        program.op("drop", *gone)
    *_, status = counts
    if announced and status:
        program.op("mark", status_word(str(status)))


def set_fields(program: Program, now: int, fields: Mapping[str, Argument], counts: tuple[Argument, ...]) -> None:
    """Set fields of the main hash. `counts`: version, steps, resumes (`"+1"` is one more) and status (`""` stays)."""
    words = [word for pair in fields.items() for word in pair]
    program.op("fields", *counts, "updated_at", now, *words)


# -- custom state


def _add_custom_changes(program: Program, changes: CustomChanges, keys: SessionKeys, unique: str) -> None:
    custom, expected = keys.custom, changes.expected
    if changes.replace_all:
        program.op("only", f"{unique}.all", *map(field_name, changes.set_keys))
    for place, key in enumerate(changes.drop_keys):
        field = field_name(key)
        program.op("unless", field, "", 2)
        program.op("clear", field, f"{unique}.-{place}")
        program.do("HDEL", custom, field)
    for place, (key, content) in enumerate(changes.set_keys.items()):
        _add_content(program, keys, field_name(key), content, f"{unique}.{place}")
    for name, text in changes.set_cells.items():
        field = field_name(name.key)
        if isinstance(name.slot, str):
            _add_member_note(program, field, field_name(name.slot), expected[name])
            program.create("HSET", keys.object_of(field), field_name(name.slot), text)
        else:
            program.op("note", _entry("i", field, str(name.slot), str(expected[name])))
            program.do("LSET", keys.list_of(field), int(name.slot or 0), text)
    for name in changes.drop_cells:
        if expected[name] is not None:
            field, member = field_name(name.key), field_name(str(name.slot))
            _add_member_note(program, field, member, expected[name])
            program.do("HDEL", keys.object_of(field), member)
    for key, texts in changes.append.items():
        if texts:
            field = field_name(key)
            program.push(keys.list_of(field), texts, _entry("c", field, ""))


def _add_content(program: Program, keys: SessionKeys, field: str, content: KeyContent, shelf: str) -> None:
    """Set one key of custom state; items and members that are already stored stay untouched."""
    text = content.text
    if text not in (LIST, OBJECT):
        program.op("unless", field, text, 2)
        program.op("clear", field, shelf)
        program.create("HSET", keys.custom, field, text)
        return
    key, registry, words = keys.list_of(field), keys.array_keys, content.items
    if text == OBJECT:
        key, registry = keys.object_of(field), keys.object_keys
        words = tuple([word for name, member in content.members for word in (field_name(name), member)])
    chunks = 1 if text == LIST else -(-len(words) // BATCH)
    program.op("patch", field, text, program.key(key), 3 + (chunks if words else 0), *words)
    program.op("clear", field, shelf)
    program.create("HSET", keys.custom, field, text)
    program.create("SADD", registry, field)
    if text == LIST and words:
        program.push(key, words)
    else:
        program.create("HSET", key, *words)


def _add_member_note(program: Program, field: str, member: str, old: str | None) -> None:
    program.op("note", _entry("M", field, member) if old is None else _entry("m", field, member, old))


def _entry(*parts: str) -> str:
    return SEPARATOR.join(parts)


def cell_command(keys: SessionKeys, name: CellName) -> tuple[Any, ...] | None:
    """Return the command that reads a cell; None for a cell that cannot exist."""
    field = field_name(name.key)
    if name.slot is None:
        return "HGET", keys.custom, field
    if isinstance(name.slot, str):
        return "HGET", keys.object_of(field), field_name(name.slot)
    if 0 <= name.slot < MAX_INDEX:
        return "LINDEX", keys.list_of(field), name.slot
    return None


def _add_rewind(program: Program, commit: Commit, keys: SessionKeys, rewind: Rewind) -> None:
    add_take_back(program, keys, rewind.entries)
    if rewind.kept_entries:
        program.do("LTRIM", keys.undo, 0, rewind.kept_entries - 1)
    else:
        program.do("DEL", keys.undo)
    assert commit.restore_number is not None
    program.do("LTRIM", keys.checkpoints, 0, commit.restore_number - 1)
    if rewind.dropped_ids:
        program.do("HDEL", keys.checkpoint_ids, *rewind.dropped_ids)
    program.do("HINCRBY", keys.main, "restores", 1)


# -- staging


def _add_staging(program: Program, commit: Commit, keys: SessionKeys) -> None:
    if commit.discard_all or commit.discard_step is not None:
        beginning = "" if commit.discard_step is None else staged_field(commit.discard_step)
        program.op("unset", program.key(keys.staging), beginning)
    if commit.promote is not None and commit.promote.rows:
        program.do("HDEL", keys.staging, *promoted_rows(commit.promote))
    if commit.stage is not None:
        step_id, rows = commit.stage
        for row in rows:
            name = staged_field(step_id, row.kind, row.tool_call_id)
            program.op("unset", program.key(keys.staging), name)  # staged again: replaced
            program.create("HSET", keys.staging, name + staged_field(row.token), encode(row))
