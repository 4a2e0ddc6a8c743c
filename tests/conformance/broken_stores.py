"""Stores that look right and are not: each breaks one rule, through public methods of a real store."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

import msgspec

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.errors import StoreUnavailable
from helix_agents.messages import Message
from helix_agents.state import StepWrites, apply_step_writes
from helix_agents.stores.state.commit import Applied, Commit
from helix_agents.stores.state.contract import StateStore
from helix_agents.types import Checkpoint, CheckpointMeta, Committed, SessionState
from tests.conformance.harnesses import MemoryHarness


class CommitIsNotAtomic(InMemoryStateStore):
    """Messages first, the rest later."""

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        **options: Any,
    ) -> Committed:
        if append_messages:
            await self.append_messages(session_id, append_messages)
        return await super().save_state_and_promote_staging(session_id, state, [], checkpoint, **options)


class MergeLosesAParallelAppend(InMemoryStateStore):
    """Reads, changes and writes back, and overwrites what was written in between."""

    async def merge_custom_state(self, session_id: str, writes: StepWrites, **options: Any) -> list[str]:
        loaded = await self.load_state(session_id)
        before = loaded.custom_state if loaded else {}
        after, warnings = apply_step_writes(before, writes)
        await asyncio.sleep(0)
        ops: list[dict[str, Any]] = [{"kind": "replace", "path": [key], "value": after[key]} for key in after]
        ops += [{"kind": "delete", "path": [key]} for key in before if key not in after]
        await super().merge_custom_state(session_id, StepWrites(ops, []))
        return warnings


class CheckpointCopiesAStaleCount(InMemoryStateStore):
    """Counts the messages before the write instead of in it."""

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        state: SessionState,
        append_messages: Sequence[Message],
        checkpoint: CheckpointMeta,
        **options: Any,
    ) -> Committed:
        count = await self.get_message_count(session_id) + len(append_messages)
        await asyncio.sleep(0)
        done = await super().save_state_and_promote_staging(session_id, state, append_messages, checkpoint, **options)
        return msgspec.structs.replace(done, message_count=count)


class SavingClearsTheFlag(InMemoryStateStore):
    """Treats the flag as one of the session's fields."""

    async def save_state(self, session_id: str, state: SessionState, **options: Any) -> int:
        version = await super().save_state(session_id, state, **options)
        if state.interrupt_flag is None:
            await self.clear_interrupt_flag(session_id)
        return version


class CheckpointShowsThePresent(InMemoryStateStore):
    """Returns the current state for an old checkpoint."""

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        made = await super().get_checkpoint(session_id, checkpoint_id)
        now = await self.load_state(session_id)
        if made is None or now is None:
            return made
        state = msgspec.structs.replace(made.state, custom_state=now.custom_state)
        return msgspec.structs.replace(made, state=state)


class LostReplyCommitsTwice(InMemoryStateStore):
    """Retries without checking whether the commit happened."""

    async def _outcome(self, commit: Commit, error: StoreUnavailable) -> Applied:
        again = msgspec.structs.replace(commit, expected_version=None, promote=None)
        return (await self._apply(again))[0]


class DeleteForgetsTheChildren(InMemoryStateStore):
    """Deletes one session only."""

    async def delete_session(self, session_id: str, **options: Any) -> bool:
        for child in (await self.list_sessions(parent_session_id=session_id, limit=200)).items:
            await self.save_state(child.session_id, msgspec.structs.replace(child, parent_session_id=None))
        return await super().delete_session(session_id)


class RewritesTheSession(InMemoryStateStore):
    """Stores a session as one value: every write writes all of it again, which no verb shows."""

    async def _apply(self, commit: Commit, *args: Any, **options: Any) -> Any:
        done = await super()._apply(commit, *args, **options)
        sessions = self._data.by_id
        sessions[commit.session_id] = pickle.loads(pickle.dumps(sessions[commit.session_id]))
        return done


class BrokenHarness(MemoryHarness):
    """The in-memory harness with a broken store in it."""

    def __init__(self, kind: type[InMemoryStateStore]) -> None:
        super().__init__()
        self.kind = kind

    async def open(self) -> StateStore:
        return self.kind(self.data)
