"""The model's sessions, and the methods about their runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from ....codec import Json
from ....errors import EpochConflict, IllegalTransition, InvalidArgument, RunNotFound, SessionNotFound
from ....lifecycle import ensure_status
from ....stores.state.contract import StateStore
from ....types import Conversation, Owner, RunRecord, RunStatus
from .session import Session


class RunModel(StateStore):
    """All sessions of the model, and what can be done with their runs."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.now = 1

    def _session(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise SessionNotFound(session_id)
        return self.sessions[session_id]

    def _guarded(
        self,
        session_id: str,
        expected_version: int | None = None,
        owner: Owner | None = None,
        new_epoch: int | None = None,
    ) -> Session:
        """Return the session if the guards hold; claim it if there is a new epoch."""
        session = self._session(session_id)
        if owner is not None and owner.incarnation != session.state.incarnation:
            raise SessionNotFound(session_id)
        session.require_version(expected_version)
        epoch = session.state.owner_epoch
        if (owner is not None and owner.epoch not in (None, epoch)) or (new_epoch is not None and new_epoch <= epoch):
            raise EpochConflict(session_id, 0, epoch)
        return session

    def _refuse_taken(self, run: RunRecord | None) -> None:
        taken = {each.run_id for other in self.sessions.values() for each in other.runs}
        if run is not None and run.run_id in taken:
            raise InvalidArgument(f"There is a run {run.run_id!r} already.")

    async def create_run(
        self,
        session_id: str,
        run_id: str,
        *,
        turn: int = 0,
        start_sequence: int = 0,
        metadata: Mapping[str, Json] | None = None,
        lease_until: int | None = None,
        expected_version: int | None = None,
        owner: Owner | None = None,
        **details: Any,
    ) -> RunRecord:
        session = self._guarded(session_id, expected_version, owner)
        wanted = RunRecord(
            run_id,
            session_id,
            turn,
            start_sequence=start_sequence,
            metadata=dict(metadata or {}),
            lease_until=lease_until,
            **details,
        )
        self._refuse_taken(wanted)
        made = session.begin(wanted, self.now)
        assert made is not None
        return made

    async def update_run_status(
        self,
        run_id: str,
        status: RunStatus,
        *,
        step_count: int | None = None,
        error: str | None = None,
        output: Json = None,
        completed_at: int | None = None,
        lease_until: int | None = None,
        start_sequence: int | None = None,
        metadata: Mapping[str, Json] | None = None,
        expected_status: RunStatus | None = None,
        owner: Owner | None = None,
    ) -> RunRecord:
        if expected_status is not None:
            ensure_status("run", expected_status)
        for session in self.sessions.values():
            for place, run in enumerate(session.runs):
                if run.run_id != run_id:
                    continue
                ended = run.status in ("completed", "failed", "interrupted") and status != run.status
                if ended or expected_status not in (None, run.status):
                    raise IllegalTransition("run", run.status, status, run_id)
                self._guarded(run.session_id, owner=owner)
                extra = {
                    "step_count": step_count,
                    "error": error,
                    "output": output,
                    "completed_at": completed_at,
                    "lease_until": lease_until,
                    "start_sequence": start_sequence,
                    "metadata": metadata,
                }
                given = {name: copy.deepcopy(value) for name, value in extra.items() if value is not None}
                session.runs[place] = msgspec.structs.replace(run, status=status, **given)
                return copy.deepcopy(session.runs[place])
        raise RunNotFound(run_id)

    async def get_current_run(self, session_id: str) -> RunRecord | None:
        found = self.sessions.get(session_id)
        return copy.deepcopy(found.runs[-1]) if found and found.runs else None

    async def load_conversation(
        self, session_id: str, *, last: int | None = 50, offset: int | None = None, custom_state: bool = True
    ) -> Conversation | None:
        found = copy.deepcopy(self.sessions.get(session_id))
        if found is None:
            return None
        start = offset if offset is not None else 0 if last is None else max(0, len(found.messages) - last)
        latest = found.checkpoints[-1] if found.checkpoints else None
        if latest is not None:
            latest = msgspec.structs.replace(latest, state=msgspec.structs.replace(latest.state, custom_state=None))
        session = found.state if custom_state else msgspec.structs.replace(found.state, custom_state=None)
        run = found.runs[-1] if found.runs else None
        return Conversation(session, found.messages[start:], len(found.messages), run, latest)

    async def list_runs(self, session_id: str) -> list[RunRecord]:
        return copy.deepcopy(self._session(session_id).runs)
