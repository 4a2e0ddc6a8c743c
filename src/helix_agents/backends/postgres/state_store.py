"""The state store on a Postgres pool, or on a driver that other stores share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...clock import Clock, IdSource, random_id, system_clock
from ...codec import encode
from ...stores.along import Along
from ...stores.state.commit import Applied, CellName, Commit, StoredConversation, StoredSession
from ...stores.usage.contract import UsageStore
from ...streams.contract import StreamManager
from ...types import Owner, SubSessionRef
from ..sql_shared.beside import OF_STREAMS, SqlBeside
from ..sql_shared.driver import BatchRefused, Row
from ..sql_shared.state import rows
from ..sql_shared.state.store import ALL_ROWS, SqlStateStore, as_commit_refusal, rebuilt
from . import commit_call
from .driver import PostgresDriver

if TYPE_CHECKING:
    from .borrowed import Pool


_REF_FIELDS = (
    "agent_type",
    "parent_tool_call_id",
    "status",
    "mode",
    "name",
    "remote",
    "started_at",
    "completed_at",
)
"""The columns in the order in which `update_ref` takes them."""


class PostgresStateStore(SqlStateStore):
    """StateStore on an asyncpg pool, migrated on first use. `close` gives connections back; the pool stays open.

    `schema`: where the tables are; left out, the first schema of the role's search path. `prefix`: of tables' names.
    `transaction_pooler`: a pooler in transaction mode is in between; implied by the pool's
    `statement_cache_size=0`. Pass `driver` to share one with other stores.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        schema: str | None = None,
        prefix: str = "",
        transaction_pooler: bool = False,
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        driver: PostgresDriver | None = None,
        beside: SqlBeside | None = None,
    ) -> None:
        self._postgres = driver or PostgresDriver(
            pool, schema=schema, prefix=prefix, transaction_pooler=transaction_pooler
        )
        self._own_driver = driver is None
        super().__init__(self._postgres, prefix=self._postgres.prefix, clock=clock, ids=ids, beside=beside)

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        wanted = list(want)
        if commit.along is not None:
            return await self._apply_along(commit, commit.along, wanted)
        params, as_list = commit_call.arguments(commit, commit_call.texts_of(commit, wanted))
        try:
            return commit_call.applied(await self._postgres.commit(params, as_list=as_list), wanted)
        except BatchRefused as refused:
            raise as_commit_refusal(refused) from refused

    def carries(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        # A role that may not create functions keeps the order of separate writes.
        return self._postgres.has_joint and super().carries(streams, usage)

    async def _apply_along(
        self, commit: Commit, along: Along, want: list[CellName]
    ) -> tuple[Applied, dict[CellName, str | None]]:
        assert self._beside is not None
        texts = commit_call.texts_of(commit, want)
        params, as_list = commit_call.arguments(commit, texts)
        append, usage = self._beside.statements(along)
        # Counted from one: the function puts the position in the stream there.
        place = 0
        if commit.checkpoint is not None and along.append is not None:
            place = texts.index(commit.checkpoint.checkpoint_id) + 4
        try:
            answer, rows = await self._postgres.commit_along(
                params, as_list=as_list, place=place, after=along.after, append=append, usage=usage
            )
        except BatchRefused as refused:
            if refused.reason not in OF_STREAMS:
                raise as_commit_refusal(refused) from refused
            return await self._beside.refused(commit, along, refused), {}
        applied, cells = commit_call.applied(answer, want)
        return applied._replace(sequence=await self._beside.landed(along, rows)), cells

    async def _read_cells(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None] | None:
        wanted = {commit_call.place_of(name): name for name in names}
        exists, found = await self._read_batch(
            self._queries("session_exists", session_id), self._queries("read_cells", session_id, encode([*wanted]))
        )
        known: dict[CellName, str | None] = dict.fromkeys(wanted.values())
        return known | {wanted[key, slot]: text for key, slot, text in found} if exists else None

    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        if not custom_state:
            return await super()._read_session(session_id, custom_state=False)
        (found,) = await self._read_batch(self._queries("read_session_as_one", session_id))
        return _session_from_one(found[0]) if found else None

    async def _read_messages(self, session_id: str, offset: int, limit: int | None) -> tuple[list[str], int] | None:
        most = ALL_ROWS if limit is None else limit
        (found,) = await self._read_batch(self._queries("read_messages_as_one", session_id, offset, most))
        if not found:
            return None
        return _texts(found[0]), found[0][0]

    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        statements = [
            self._queries("read_session_as_one" if custom_state else "read_session", session_id),
            self._queries("read_runs", session_id, 1),
            self._queries("read_checkpoint", session_id, None, None),
        ]
        if offset is not None:
            statements.append(self._queries("read_messages_as_one", session_id, offset, ALL_ROWS))
        found, runs, checkpoints, *page = await self._read_batch(*statements)
        if not found:
            return None
        stored = _session_from_one(found[0]) if custom_state else rows.session_from_row(found[0])
        return rows.conversation_from_rows(stored, _texts(page[0][0]) if page else [], runs, checkpoints)

    async def _update_ref(
        self, session_id: str, sub_session_id: str, changes: Mapping[str, Any], owner: Owner | None, now: int
    ) -> SubSessionRef | None:
        # A fixed statement instead of one made to measure: it is part of the batch function.
        given = f",{','.join(changes)},"
        values = [rows.ref_value(field, changes.get(field)) for field in _REF_FIELDS]
        answers = await self._write_batch(
            [
                self._queries("touch_for_ref", session_id, sub_session_id, now),
                *self._owner_guard(session_id, owner),
                self._queries("update_ref", session_id, sub_session_id, given, *values),
                self._queries("read_ref", session_id, sub_session_id),
            ]
        )
        return rows.ref_from_row(answers[-1][0]) if answers[-1] else None

    async def _delete(self, session_id: str, owner: Owner | None) -> bool:
        doomed = self._queries("delete_session_tree", session_id, *rows.owner_columns(owner))
        ((counted,),) = await self._write_batch([doomed])
        return bool(counted[0])

    async def close(self) -> None:
        if self._own_driver:
            await self._driver.close()


def _session_from_one(row: Row) -> StoredSession:
    """Return a row of `read_session_as_one`."""
    *columns, cells = row
    custom = rebuilt([cell.split("\x1f") for cell in cells.split("\x1e")]) if cells else {}
    return rows.session_from_row(tuple(columns), custom)


def _texts(row: Row) -> list[str]:
    """Return the messages in a row of `read_messages_as_one`."""
    _, texts = row
    return [] if texts is None else texts.split("\x1e")
