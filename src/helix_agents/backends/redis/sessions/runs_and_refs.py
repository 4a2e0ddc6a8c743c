"""Runs and refs: records of a session that are changed one at a time, and the owner of a run id.

A run is found by its id alone, wherever its session lives: a key of its own names the session. It is written before the
run, and a session may take over one that was left behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from ....clock import Clock, IdSource, random_id, system_clock
from ....codec import decode, to_struct
from ....errors import StoreUnavailable
from ....retry import CONTENTION
from ....stores.state.commit import CommitRefused, RunChange
from ....types import Owner, RunRecord, SubSessionRef
from ..client.connection import Client
from ..keys import SessionKeys, run_key
from ..program.runner import Refused
from ..program.vocabulary import Program
from .compile import finish, require_session
from .expiry import SESSION_TTL_SECONDS
from .read_verbs import RedisReads
from .session_hash import as_texts, numbered_run, run_from, struct_text, text_or_none

MAX_KNOWN_RUNS = 4096


class RedisRecords(RedisReads):
    """The part of the state store that stores runs and refs."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "agent",
        ttl: int = SESSION_TTL_SECONDS,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
    ) -> None:
        super().__init__(redis, prefix=prefix, ttl=ttl, clock=clock, ids=ids)
        self._run_owners: OrderedDict[str, str] = OrderedDict()

    async def _claim_run(self, run: RunRecord) -> bool:
        """Record which session a run belongs to; return False if the id belongs to a run of another session."""
        key = run_key(self._prefix, run.run_id)
        for _ in CONTENTION.attempts():
            if await self._servers.one(key, "SET", key, run.session_id, "NX", "PX", 3 * self._ttl_ms) is not None:
                return True
            owner = text_or_none(await self._servers.one(key, "GET", key))
            if owner is None:
                continue
            if owner == run.session_id:
                return True
            theirs = self._keys(owner).runs
            if await self._servers.one(theirs, "HEXISTS", theirs, run.run_id):
                return False
            # Left behind by a session that is gone, or by a writer that never came to it.
            program = Program(key)
            program.require("owner", owner, "GET", key)
            program.do("SET", key, run.session_id, "PX", str(3 * self._ttl_ms))
            await self._runner.run(program)
        raise StoreUnavailable(f"Too many processes claimed run {run.run_id!r} at once: try again.")

    async def _own_run(self, run_id: str, session_id: str) -> None:
        key = run_key(self._prefix, run_id)
        await self._servers.one(key, "SET", key, session_id, "PX", 3 * self._ttl_ms)

    async def _owner_of(self, run_id: str) -> str | None:
        owner = self._run_owners.get(run_id)
        if owner is None:
            key = run_key(self._prefix, run_id)
            owner = text_or_none(await self._servers.one(key, "GET", key))
            if owner is not None:
                self._run_owners[run_id] = owner
                if len(self._run_owners) > MAX_KNOWN_RUNS:
                    self._run_owners.popitem(last=False)
        return owner

    async def _update_run(
        self, run_id: str, changes: Mapping[str, Any], allowed_from: tuple[str, ...], owner: Owner | None
    ) -> tuple[bool, RunRecord | None]:
        for _ in CONTENTION.attempts():
            session_id = await self._owner_of(run_id)
            if session_id is None:
                return False, None
            keys = self._keys(session_id)
            old = text_or_none(await self._servers.one(keys.runs, "HGET", keys.runs, run_id))
            if old is None:
                # Gone with its session; another one may have taken the id since.
                if self._run_owners.pop(run_id, None) is None or await self._owner_of(run_id) == session_id:
                    return False, None
                continue
            run = run_from(old)
            if run.status not in allowed_from:
                return False, run
            new = msgspec.structs.replace(run, **changes)
            await self._claimable.before_change(run, new)
            refused = await self._put_text(keys, keys.runs, run_id, old, numbered_run(new), owner)
            if refused is None:
                await self._claimable.after_change(run, new)
                return True, new
            if refused != "changed":
                return False, run
        raise StoreUnavailable(f"Too many processes changed run {run_id!r} at once: try again.")

    async def _reread(self, change: RunChange | None) -> RunChange | None:
        """Reread the run and apply the change to it; None if status or lease differ, so that the rejection is final.

        The guard compares the whole record as text, but the contract rejects only another status or lease.
        """
        if change is None:
            return None
        runs = self._keys(change.seen.session_id).runs
        text = text_or_none(await self._servers.one(runs, "HGET", runs, change.seen.run_id))
        run = None if text is None else run_from(text)
        if run is None or run == change.seen:
            return None
        if (run.status, run.lease_until) != (change.seen.status, change.seen.lease_until):
            return None
        return RunChange(run, msgspec.structs.replace(run, **change.changes))

    async def _update_ref(
        self, session_id: str, sub_session_id: str, changes: Mapping[str, Any], owner: Owner | None, now: int
    ) -> SubSessionRef | None:
        keys = self._keys(session_id)
        for _ in CONTENTION.attempts():
            old = text_or_none(await self._servers.one(keys.refs, "HGET", keys.refs, sub_session_id))
            if old is None:
                return None
            new = msgspec.structs.replace(to_struct(SubSessionRef, decode(old)), **changes)
            refused = await self._put_text(keys, keys.refs, sub_session_id, old, struct_text(new), owner, now)
            if refused is None:
                return new
            if refused != "changed":
                raise CommitRefused(refused)  # type: ignore[arg-type]  # the reasons that compile.py gave
        raise StoreUnavailable(f"Too many processes changed the ref to {sub_session_id!r} at once: try again.")

    async def _put_text(
        self, keys: SessionKeys, key: str, field: str, old: str, new: str, owner: Owner | None, now: int | None = None
    ) -> str | None:
        """Replace one text of the session if it has not changed; return why it was not replaced."""
        program = Program.of_session(keys, self._ttl_ms)
        if owner is not None:
            require_session(program, owner)
        program.require("changed", old, "HGET", key, field)
        program.do("HSET", key, field, new)
        # Every write touches the main hash: that is the key to watch.
        program.do("HSET", keys.main, *(("touched", "1") if now is None else ("updated_at", now)))
        finish(program)
        answer = await self._runner.run(program)
        if isinstance(answer, Refused):
            return answer.reason
        if answer.moved:
            await self._keep_alive(keys.session_id)
        return None

    async def _keep_alive(self, session_id: str) -> None:
        """Extend the lifetime of the index entry and of the run owners to the session's new deadline."""
        keys = self._keys(session_id)
        stored = await self._read_session(session_id, custom_state=False)
        if stored is None:
            return
        await self._index.announce_state(stored.state, token=self._ids())
        run_ids, ref_ids = await self._ids_of(keys)
        if ref_ids:
            await self._index.note_refs(session_id, ref_ids)
        for run_id in run_ids:
            await self._own_run(run_id, session_id)

    async def _ids_of(self, keys: SessionKeys) -> tuple[list[str], list[str]]:
        """Return the runs and refs of a session."""
        commands = [("LRANGE", keys.run_ids, 0, -1), ("LRANGE", keys.ref_ids, 0, -1)]
        run_ids, ref_ids = await self._servers.run(keys.main, commands, atomic=True)
        return as_texts(run_ids), as_texts(ref_ids)

    async def _drop_ref(self, referrer: str, session_id: str) -> None:
        """Remove the ref to a deleted session, unless it names a remote session, which was not deleted."""
        keys = self._keys(referrer)
        text = text_or_none(await self._servers.one(keys.refs, "HGET", keys.refs, session_id))
        if text is None or to_struct(SubSessionRef, decode(text)).remote is not None:
            return
        program = Program.of_session(keys, self._ttl_ms)
        program.require("changed", text, "HGET", keys.refs, session_id)
        program.do("HDEL", keys.refs, session_id)
        program.do("LREM", keys.ref_ids, 0, session_id)
        program.do("HSET", keys.main, "touched", "1")
        finish(program)
        await self._runner.run(program)
