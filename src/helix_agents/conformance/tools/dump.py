"""All that a store returns about its sessions, as one plain value, through public methods only.

Two dumps are equal if the stores return the same data. `portrait` leaves out what differs between two sessions
with the same history: ids, times, incarnations, the random end of a checkpoint id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...stores.state.contract import StateStore
from ..expect import plain

STEPS = ("step-1", "step-2", "step-3")
"""The kit stages under these step ids only, because a store need not list step ids."""

CHECKPOINT_ID = re.compile(r"cpv1-(?P<session>.+)-s(?P<step>\d+)-t(?P<time>\d+)-[0-9a-f]{6}", re.DOTALL)
_OF_THE_MOMENT = frozenset({"created_at", "updated_at", "set_at", "staged_at", "incarnation", "branch_id"})


async def dump_session(store: StateStore, session_id: str, steps: Iterable[str] = STEPS) -> dict[str, Any] | None:
    """Return everything about one session; None if there is none."""
    state = await store.load_state(session_id)
    if state is None:
        return None
    listed = await store.list_checkpoints(session_id, limit=200)
    return {
        "state": plain(state),
        "messages": (await store.get_messages(session_id, limit=None)).items,
        "message_count": await store.get_message_count(session_id),
        "flag": plain(await store.check_interrupt_flag(session_id)),
        "refs": plain(await store.list_sub_session_refs(session_id)),
        "runs": plain(await store.list_runs(session_id)),
        "conversation": plain(await store.load_conversation(session_id, last=3)),
        "current_run": plain(await store.get_current_run(session_id)),
        "staged": {step: plain(rows) for step in steps if (rows := await store.list_staged(session_id, step))},
        "branches": {it.branch_id: plain(it) for it in await store.list_branches(session_id)},
        "checkpoint_total": listed.total,
        "checkpoints": [plain(await store.get_checkpoint(session_id, it.checkpoint_id)) for it in listed.items],
    }


async def dump(store: StateStore, steps: Iterable[str] = STEPS) -> dict[str, Any]:
    """Return everything about every session of the store."""
    found: dict[str, Any] = {}
    cursor: str | None = None
    while True:
        page = await store.list_sessions(limit=200, cursor=cursor)
        for item in page.items:
            found[item.session_id] = await dump_session(store, item.session_id, steps)
        if not page.has_more:
            return found
        cursor = page.next_cursor


async def portrait(store: StateStore, session_id: str) -> Any:
    """Return a dump of one session that is equal for any two sessions with the same history."""
    return anonymous(await dump_session(store, session_id), session_id)


def anonymous(value: Any, session_id: str) -> Any:
    """Return the value without times, with the session's id and its checkpoint ids replaced."""
    if isinstance(value, dict):
        without_clock = {key: item for key, item in value.items() if key not in _OF_THE_MOMENT}
        if "turn" in without_clock:
            del without_clock["started_at"]  # The clock sets a run's start; the caller sets that of a ref.
        if isinstance(branches := without_clock.get("branches"), dict):
            without_clock["branches"] = list(branches.values())
        return {key: anonymous(item, session_id) for key, item in without_clock.items()}
    if isinstance(value, list | tuple):
        return [anonymous(item, session_id) for item in value]
    if isinstance(value, str):
        if matched := CHECKPOINT_ID.fullmatch(value):
            return f"checkpoint of step {matched['step']}"
        return value.replace(session_id, "(session)")
    return value
