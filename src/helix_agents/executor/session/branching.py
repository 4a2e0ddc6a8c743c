"""Regenerate, edit and switch: replace the end of a conversation with another one.

Each is one guarded commit of the store (`branch_session`, `switch_branch`), which ends an open run, raises the owner
epoch and stores the old end as a branch. The stream follows, with the epoch as its fence: it is reset, and a
`branch_switched` chunk announces the branch. If a process dies in between, the stream's fence is behind the epoch; the
next claim resets the stream, and so does repeating the switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import (
    EpochConflict,
    InvalidArgument,
    LeaseConflict,
    RunLost,
    SessionNotFound,
    StreamFenced,
    StreamNotActive,
    VersionConflict,
    shown,
)
from ...messages import Message, is_from_user
from ...stores.state.branching import on_branch
from ...stores.state.contract import StateStore
from ...streams.contract import StreamManager
from ...types import Branch, BranchPoint, Checkpoint, Owner, SessionState
from ..services import Services
from ..step.decisions import step_id_of
from ..step.ledger import abandoned_effects
from ..stream.leftover import drop_leftover
from ..stream.prepare import announce_branch, drop_orphan, stop_stream
from .claim import REPLACED, Claim, NewRun, Start, ended_run, next_epoch, start_turn
from .closing import decided
from .observe import Found, Sessions, find
from .standing import Intent

FIRST_PAGE, LARGEST_PAGE = 4, 128


class BranchStart(NamedTuple):
    """The message at which a new branch starts: a user message to replace, or a reply to produce again.

    `message_id` None: the last reply.
    """

    message_id: str | None
    replaces: bool


async def start_branch(
    services: Services, found: Found, branch_at: BranchStart, messages: Sequence[Message], new: NewRun
) -> Claim:
    """Start a turn on a new branch. Raises `InvalidArgument` if it cannot start at this message."""
    session, history = found.existing, await found.history(services.store)
    kept = _kept_count(history, branch_at)
    fork = await _fork_checkpoint(services.store, found, kept)
    point = BranchPoint(f"branch-{services.ids()}", fork.checkpoint_id, kept, _branch_message_id(history[:kept]))
    start = Start(on_branch(session, fork.state), history[:kept], point)
    rows = await services.store.list_staged(session.session_id, step_id_of(session, run_id_of(found)))
    left = abandoned_effects(history, kept, rows)
    return await announce_start(services, await start_turn(services, found, [*left, *messages], new, start))


async def announce_start(services: Services, claim: Claim) -> Claim:
    """Announce on the turn's new stream which branch it is on, if the turn started one. Raises `RunLost`."""
    before = claim.messages[: claim.run.first_message]
    active = await _active_at(services.store, claim.session.session_id, _branch_message_id(before))
    if active is not None:
        try:
            await announce_branch(services.streams, claim.session, active, len(before), claim.fence)
        except (StreamFenced, StreamNotActive) as error:
            raise claim.lost() from error
    return claim


def _branch_message_id(history: Sequence[Message]) -> str | None:
    """Return the id of the message after which a branch starts."""
    return next((each["id"] for each in reversed(history) if "id" in each), None)


def run_id_of(found: Found) -> str:
    """Return the id of the latest run; empty if there is none."""
    return found.run.run_id if found.run is not None else ""


async def _active_at(store: StateStore, session_id: str, message_id: str | None) -> str | None:
    """Return the active branch after a message; None if no branch starts there."""
    branches = await store.list_branches(session_id)
    return next((it.branch_id for it in branches if it.is_active and it.message_id == message_id), None)


def _kept_count(history: Sequence[Message], branch_at: BranchStart) -> int:
    """Return how many messages the new branch keeps."""
    position = len(history)
    if branch_at.message_id is not None:
        found = [at for at, message in enumerate(history) if message.get("id") == branch_at.message_id]
        if not found:
            raise InvalidArgument(f"The conversation has no message {shown(branch_at.message_id)}: load it again.")
        position = found[0]
        role = history[position]["role"]
        if branch_at.replaces and not is_from_user(history[position]):
            raise InvalidArgument(f"Message {branch_at.message_id!r} is not from a user ({role}): it cannot be edited.")
        if not branch_at.replaces and role != "assistant":
            raise InvalidArgument(
                f"Message {branch_at.message_id!r} is not a reply ({role}): edit() replaces messages."
            )
    if branch_at.replaces:
        return position
    asked = [at for at, message in enumerate(history[:position]) if is_from_user(message)]
    if not asked:
        raise InvalidArgument("No user message comes before that reply: there is nothing to answer again.")
    return asked[-1] + 1


async def _fork_checkpoint(store: StateStore, source: Found, kept: int) -> Checkpoint:
    """Return the first checkpoint with at least `kept` messages, with its state. Reads backward from the latest one."""
    found, session_id = source.checkpoint, source.seen.session_id
    if found is None:
        raise InvalidArgument(f"Session {session_id!r} has no checkpoint to go back to: it has never run.")
    offset, size, more = 0, FIRST_PAGE, True
    while more:
        page = await store.list_checkpoints(session_id, limit=size, offset=offset)
        for checkpoint in page.items:
            if checkpoint.message_count >= kept:
                found = checkpoint
        more = page.has_more and page.items[-1].message_count >= kept
        offset, size = offset + size, min(2 * size, LARGEST_PAGE)
    whole = await store.get_checkpoint(session_id, found.checkpoint_id)
    if whole is None:
        raise await _changed(store, source.existing)
    return whole


async def _changed(store: StateStore, seen: SessionState) -> SessionNotFound | VersionConflict:
    """Return the error for a session that another process has changed or deleted since it was read."""
    stored = await store.load_state(seen.session_id)
    if stored is None:
        return SessionNotFound(seen.session_id)
    return VersionConflict(seen.version, stored.version, stored.status, seen.session_id)


async def list_branches(services: Sessions, session_id: str, *, user_id: str | None = None) -> list[Branch]:
    """Return the branches of a session."""
    session = (await find(services, session_id, user_id=user_id)).existing
    return await services.store.list_branches(session.session_id)


async def switch_branch(
    services: Sessions, session_id: str, branch_id: str, *, user_id: str | None = None
) -> SessionState:
    """Switch to another branch. Raises `AlreadyRunning` if the session is running, and `VersionConflict`."""
    found, _ = await decided(services, Intent.BRANCH, session_id, user_id=user_id)
    session, run, now = found.existing, found.run, services.clock()
    await drop_leftover(services.streams, session)
    try:
        version = await services.store.switch_branch(
            session_id,
            branch_id,
            append_messages=await _effects_of_abandoned_end(services, found, branch_id),
            expected_version=session.version,
            change_run=ended_run(session, run, now),
            owner=Owner(session.incarnation),
            new_epoch=next_epoch(session, now),
        )
    except (EpochConflict, LeaseConflict) as error:
        raise VersionConflict(session.version, session.version, session.status, session_id) from error
    present = await services.store.load_state(session_id)
    if present is None:
        raise SessionNotFound(session_id)
    if present.version != version:
        raise VersionConflict(version, present.version, present.status, session_id)
    if services.streams is not None:
        try:
            await _announce_switch(services.streams, services.store, present, branch_id)
            if await drop_orphan(services.store, services.streams, present, present.owner_epoch):
                raise SessionNotFound(session_id)
        except (StreamFenced, StreamNotActive) as error:
            raise RunLost(session_id, run.run_id if run else "", REPLACED) from error
    return present


async def _effects_of_abandoned_end(services: Sessions, found: Found, branch_id: str) -> list[Message]:
    """Return the message that records the effects of the messages that a switch abandons.

    A branch inside an inactive branch may start at an earlier message than assumed here, but never at a later one.
    """
    branches = await services.store.list_branches(found.existing.session_id)
    history = await found.history(services.store)
    ends: dict[str | None, int] = {None: 0} | {each["id"]: at + 1 for at, each in enumerate(history) if "id" in each}
    points = {it.branch_id: ends[it.message_id] for it in branches if not it.is_active and it.message_id in ends}
    kept = points.get(branch_id, min(points.values(), default=0))
    while kept < len(history) and history[kept]["role"] == "tool":
        kept += 1
    rows = await services.store.list_staged(found.existing.session_id, step_id_of(found.existing, run_id_of(found)))
    return abandoned_effects(history, kept, rows)


async def _announce_switch(streams: StreamManager, store: StateStore, session: SessionState, branch_id: str) -> None:
    """Reset the stream and announce the branch, unless that is done; leave the stream in the session's status.

    If a process died here, the stream is still active under this fence: then everything is done again.
    """
    info, fence = await streams.get_stream_info(session.stream_id), session.owner_epoch
    if info is None or info.fence > fence or (info.fence == fence and info.status != "active"):
        return
    await streams.reset_stream(session.stream_id, fence=fence)
    await announce_branch(streams, session, branch_id, await store.get_message_count(session.session_id), fence)
    await stop_stream(streams, session, fence)
