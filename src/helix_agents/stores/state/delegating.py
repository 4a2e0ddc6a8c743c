"""A state store that passes every call to another one. Subclass it and override what should differ.

For stores that encrypt, log, cache, count or route: the contract stays that of the store inside. Whatever is not
overridden is passed on as it was given.
"""

from __future__ import annotations

from typing import Any

from ...messages import Message
from ...types import (
    Branch,
    Checkpoint,
    Claimable,
    Committed,
    Conversation,
    InterruptFlag,
    Page,
    RunRecord,
    SessionState,
    SessionStatus,
    StagedChanges,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from .contract import StateStore


class DelegatingStateStore(StateStore):
    """Wraps the store `inner`."""

    def __init__(self, inner: StateStore) -> None:
        self.inner = inner
        self.exact_counts = inner.exact_counts
        self.finds_prefixes = inner.finds_prefixes

    def carries(self, *args: Any) -> bool:
        return self.inner.carries(*args)

    def carries_to(self, session_id: str, stream_id: str) -> bool:
        return self.inner.carries_to(session_id, stream_id)

    async def create_session(self, *args: Any, **options: Any) -> SessionState:
        return await self.inner.create_session(*args, **options)

    async def session_exists(self, *args: Any, **options: Any) -> bool:
        return await self.inner.session_exists(*args, **options)

    async def delete_session(self, *args: Any, **options: Any) -> bool:
        return await self.inner.delete_session(*args, **options)

    async def load_state(self, *args: Any, **options: Any) -> SessionState | None:
        return await self.inner.load_state(*args, **options)

    async def save_state(self, *args: Any, **options: Any) -> int:
        return await self.inner.save_state(*args, **options)

    async def save_state_and_promote_staging(self, *args: Any, **options: Any) -> Committed:
        return await self.inner.save_state_and_promote_staging(*args, **options)

    async def stage_changes(self, *args: Any, **options: Any) -> None:
        await self.inner.stage_changes(*args, **options)

    async def stage_calls(self, *args: Any, **options: Any) -> int:
        return await self.inner.stage_calls(*args, **options)

    async def list_staged(self, *args: Any, **options: Any) -> list[StagedChanges]:
        return await self.inner.list_staged(*args, **options)

    async def promote_staging(self, *args: Any, **options: Any) -> list[str]:
        return await self.inner.promote_staging(*args, **options)

    async def discard_staging(self, *args: Any, **options: Any) -> int:
        return await self.inner.discard_staging(*args, **options)

    async def append_messages(self, *args: Any, **options: Any) -> int:
        return await self.inner.append_messages(*args, **options)

    async def merge_custom_state(self, *args: Any, **options: Any) -> list[str]:
        return await self.inner.merge_custom_state(*args, **options)

    async def update_status(self, *args: Any, **options: Any) -> int:
        return await self.inner.update_status(*args, **options)

    async def increment_step_count(self, *args: Any, **options: Any) -> int:
        return await self.inner.increment_step_count(*args, **options)

    async def increment_resume_count(self, *args: Any, **options: Any) -> int:
        return await self.inner.increment_resume_count(*args, **options)

    async def compare_and_set_status(self, *args: Any, **options: Any) -> StatusSwapped | StatusConflict:
        return await self.inner.compare_and_set_status(*args, **options)

    async def set_interrupt_flag(self, *args: Any, **options: Any) -> None:
        await self.inner.set_interrupt_flag(*args, **options)

    async def check_interrupt_flag(self, *args: Any, **options: Any) -> InterruptFlag | None:
        return await self.inner.check_interrupt_flag(*args, **options)

    async def clear_interrupt_flag(self, *args: Any, **options: Any) -> None:
        await self.inner.clear_interrupt_flag(*args, **options)

    async def add_sub_session_refs(self, *args: Any, **options: Any) -> None:
        await self.inner.add_sub_session_refs(*args, **options)

    async def update_sub_session_ref(self, *args: Any, **options: Any) -> SubSessionRef:
        return await self.inner.update_sub_session_ref(*args, **options)

    async def list_sub_session_refs(self, *args: Any, **options: Any) -> list[SubSessionRef]:
        return await self.inner.list_sub_session_refs(*args, **options)

    async def get_messages(self, *args: Any, **options: Any) -> Page[Message]:
        return await self.inner.get_messages(*args, **options)

    async def get_message_count(self, *args: Any, **options: Any) -> int:
        return await self.inner.get_message_count(*args, **options)

    async def truncate_messages(self, *args: Any, **options: Any) -> int:
        return await self.inner.truncate_messages(*args, **options)

    async def list_sessions(self, *args: Any, **options: Any) -> Page[SessionState]:
        return await self.inner.list_sessions(*args, **options)

    async def list_due(self, *args: Any, **options: Any) -> Page[Claimable]:
        return await self.inner.list_due(*args, **options)

    async def next_due(self, *args: Any, **options: Any) -> int | None:
        return await self.inner.next_due(*args, **options)

    async def find_sessions(self, *args: Any, **options: Any) -> list[SessionState]:
        return await self.inner.find_sessions(*args, **options)

    async def count_by_status(self, *args: Any, **options: Any) -> dict[SessionStatus, int]:
        return await self.inner.count_by_status(*args, **options)

    async def list_orphans(self, *args: Any, **options: Any) -> list[str]:
        return await self.inner.list_orphans(*args, **options)

    async def drop_orphan(self, *args: Any, **options: Any) -> bool:
        return await self.inner.drop_orphan(*args, **options)

    async def create_run(self, *args: Any, **options: Any) -> RunRecord:
        return await self.inner.create_run(*args, **options)

    async def update_run_status(self, *args: Any, **options: Any) -> RunRecord:
        return await self.inner.update_run_status(*args, **options)

    async def get_current_run(self, *args: Any, **options: Any) -> RunRecord | None:
        return await self.inner.get_current_run(*args, **options)

    async def list_runs(self, *args: Any, **options: Any) -> list[RunRecord]:
        return await self.inner.list_runs(*args, **options)

    async def list_checkpoints(self, *args: Any, **options: Any) -> Page[Checkpoint]:
        return await self.inner.list_checkpoints(*args, **options)

    async def get_checkpoint(self, *args: Any, **options: Any) -> Checkpoint | None:
        return await self.inner.get_checkpoint(*args, **options)

    async def load_conversation(self, *args: Any, **options: Any) -> Conversation | None:
        return await self.inner.load_conversation(*args, **options)

    async def get_latest_checkpoint(self, *args: Any, **options: Any) -> Checkpoint | None:
        return await self.inner.get_latest_checkpoint(*args, **options)

    async def restore_checkpoint(self, *args: Any, **options: Any) -> int:
        return await self.inner.restore_checkpoint(*args, **options)

    async def fork_session(self, *args: Any, **options: Any) -> SessionState:
        return await self.inner.fork_session(*args, **options)

    async def branch_session(self, *args: Any, **options: Any) -> Committed:
        return await self.inner.branch_session(*args, **options)

    async def switch_branch(self, *args: Any, **options: Any) -> int:
        return await self.inner.switch_branch(*args, **options)

    async def list_branches(self, *args: Any, **options: Any) -> list[Branch]:
        return await self.inner.list_branches(*args, **options)

    async def close(self, *args: Any, **options: Any) -> None:
        await self.inner.close(*args, **options)
