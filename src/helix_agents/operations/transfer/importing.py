"""Write the sessions of an export into stores. An interrupted import can be repeated.

A session is marked while it is being written: by its metadata when it is created, then by an interrupt flag, which no
commit overwrites and which prevents runs. A marked session was left unfinished by an earlier import: it is deleted and
written again. An existing session without the mark is skipped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ...codec import Json, to_struct
from ...errors import InvalidArgument, StoreCorrupt
from ...executor import open_run
from ...messages import Message
from ...state import apply_patch
from ...state.writes import StepWrites
from ...stores.memory.contract import Memory
from ...stores.state.contract import StateStore
from ...stores.state.run_details import DETAILS
from ...types import CheckpointMeta, RunRecord, SessionState, StagedChanges, SubSessionRef
from .exporting import Progress, TransferStores
from .records import Record, blocks, read_header

MARK = "helix-import-unfinished"
CREATED_WITH = ("parent_session_id", "root_session_id", "user_id", "tags", "expires_at", "stream_id", "agent_type")


class Imported(msgspec.Struct):
    """What an import did. `skipped`: sessions that existed already."""

    sessions: int = 0
    skipped: int = 0
    memories: int = 0
    complete: bool = False


async def import_sessions(
    stores: TransferStores, lines: Iterable[str], *, progress: Progress = lambda done, total: None
) -> Imported:
    """Write all sessions and memories that the stores do not have yet. *Idempotent.*

    Each session is checked against its digest before any of it is written. Raises `InvalidArgument` for a file that is
    damaged, cut off, or of a newer format.
    """
    imported = Imported()
    rest: Iterator[str] = iter(lines)
    read_header(next(rest, None))
    for records in blocks(rest):
        try:
            await _import_block(stores, records, imported)
        except (KeyError, TypeError, StoreCorrupt) as error:  # a record that lacks required members
            raise InvalidArgument(f"The export holds a record that cannot be read: {error!r}.") from error
        progress(imported.sessions + imported.skipped, 0)
    if not imported.complete:
        raise InvalidArgument(
            f"The export was cut off after {imported.sessions + imported.skipped} sessions, which are imported: "
            "finish it with export --resume, then import again."
        )
    return imported


async def _import_block(stores: TransferStores, records: list[Record], imported: Imported) -> None:
    if records[0]["kind"] == "end":
        imported.complete = True
    elif records[0]["kind"] == "memories":
        for item in records[0]["items"]:
            await stores.memory.save(to_struct(Memory, item))
        imported.memories += len(records[0]["items"])
    elif await _import_session(stores, records):
        imported.sessions += 1
    else:
        imported.skipped += 1


async def _import_session(stores: TransferStores, records: list[Record]) -> bool:
    wanted = to_struct(SessionState, records[0]["session"])
    kinds = {kind: [record for record in records if record["kind"] == kind] for kind in _KINDS}
    store, session_id = stores.state, wanted.session_id
    there = await store.load_state(session_id)
    if there is not None:
        if not _is_unfinished(there):
            return False
        await _remove_unfinished(store, there)
    await _write(stores, wanted, kinds)
    return True


async def _remove_unfinished(store: StateStore, session: SessionState) -> None:
    """Delete an unfinished session, and restore the parent's reference to it, which the deletion removes."""
    parent_id = session.parent_session_id
    noted: list[SubSessionRef] = []
    if parent_id is not None and await store.session_exists(parent_id):
        noted = [r for r in await store.list_sub_session_refs(parent_id) if r.sub_session_id == session.session_id]
    await store.delete_session(session.session_id)
    if parent_id is not None and noted:
        await store.add_sub_session_refs(parent_id, noted)


def _is_unfinished(session: SessionState) -> bool:
    flag = session.interrupt_flag
    return (flag is not None and flag.reason == MARK) or MARK in session.metadata


_KINDS = ("blob", "messages", "checkpoint", "custom_state", "run", "refs", "staged", "usage")


async def _write(stores: TransferStores, wanted: SessionState, kinds: dict[str, list[Record]]) -> None:
    store, session_id = stores.state, wanted.session_id
    await store.create_session(
        session_id,
        custom_state={},
        metadata={MARK: "unfinished"},
        **{name: getattr(wanted, name) for name in CREATED_WITH},
    )
    await store.set_interrupt_flag(session_id, MARK)
    for record in kinds["blob"]:
        await _write_blob(stores, session_id, record)
    messages = [message for record in kinds["messages"] for message in record["items"]]
    custom_state = await _write_history(store, wanted, messages, kinds["checkpoint"])
    for record in kinds["custom_state"]:
        custom_state = apply_patch(custom_state, record["patch"])
    for record in kinds["run"]:
        await _write_run(store, to_struct(RunRecord, record["run"]))
    for record in kinds["refs"]:
        await store.add_sub_session_refs(session_id, [to_struct(SubSessionRef, item) for item in record["items"]])
    for record in kinds["staged"]:
        calls = [_staged(item) for item in record["items"]]
        await store.stage_calls(session_id, record["step_id"], calls)
    for record in kinds["usage"]:
        # The imported session has an incarnation of its own.
        await stores.usage.record_entries([{**item, "incarnation": None} for item in record["items"]])
    await store.save_state(session_id, _as_new(wanted, custom_state))
    # The last write removes the mark: until here, the session counts as unfinished.
    if (flag := wanted.interrupt_flag) is not None:
        await store.set_interrupt_flag(session_id, flag.reason, run_id=flag.run_id)
    else:
        await store.clear_interrupt_flag(session_id)


async def _write_blob(stores: TransferStores, session_id: str, record: Record) -> None:
    try:
        data = base64.b64decode(record["data"], validate=True)
    except ValueError as error:
        raise StoreCorrupt(f"Blob {record['digest']} of session {session_id!r} is damaged in this export.") from error
    ref = await stores.blobs.put(session_id, data, media_type=record["media_type"])
    if ref.digest != record["digest"]:
        await stores.blobs.delete(session_id, [ref.digest])
        raise StoreCorrupt(f"Blob {record['digest']} of session {session_id!r} is damaged in this export.")


async def _write_history(
    store: StateStore, wanted: SessionState, messages: list[Message], points: list[Record]
) -> Json:
    """Write commit by commit, so that every checkpoint can be restored; return the last custom state."""
    custom_state: Json = {}
    written = 0
    for point in points:
        custom_state = apply_patch(custom_state, point["patch"])
        state = to_struct(SessionState, point["state"])
        until = max(written, min(point["message_count"], len(messages)))
        await store.save_state_and_promote_staging(
            wanted.session_id,
            _as_new(state, custom_state),
            messages[written:until],
            # Its stream stays behind.
            CheckpointMeta(
                point["step_id"], point["step_count"], kind=point.get("of", "step"), request=point.get("request")
            ),
        )
        written = until
    if written < len(messages):
        await store.append_messages(wanted.session_id, messages[written:])
    return custom_state


def _as_new(state: SessionState, custom_state: Json) -> SessionState:
    """Return a state of the exported session for the new session."""
    return msgspec.structs.replace(state, custom_state=custom_state, created_at=0, incarnation="")


async def _write_run(store: StateStore, run: RunRecord) -> None:
    # A run that was active when it was exported is not active here: its lease has expired.
    details = {name: getattr(run, name) for name in DETAILS}
    await store.create_run(run.session_id, run.run_id, turn=run.turn, metadata=run.metadata, lease_until=0, **details)
    if open_run(run) is None:
        await store.update_run_status(
            run.run_id,
            run.status,
            step_count=run.step_count,
            error=run.error,
            output=run.output,
            completed_at=run.completed_at,
        )


def _staged(item: dict[str, Any]) -> StagedChanges:
    writes = item["writes"]
    return StagedChanges(
        tool_call_id=item["tool_call_id"],
        index=item["index"],
        writes=StepWrites(writes["ops"], writes.get("warnings", [])),
        result=item["result"],
        kind=item.get("kind", "call"),
    )
