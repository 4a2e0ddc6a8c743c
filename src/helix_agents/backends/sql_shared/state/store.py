"""SqlStateStore: the verbs of the state store on any `SqlDriver`. Each verb is one batch: one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from ....clock import Clock, IdSource, random_id, system_clock
from ....codec import Json, encode
from ....errors import StoreCorrupt, StoreError
from ....ids import checkpoint_time
from ....stores.state.base import StateStoreBase
from ....stores.state.cells import rebuild
from ....stores.state.commit import (
    Applied,
    CellName,
    ClaimableFilter,
    ClaimablePlace,
    Commit,
    CommitRefused,
    GuardReason,
    SessionFilter,
    StagedRow,
    StoredCheckpoint,
    StoredConversation,
    StoredSession,
)
from ....stores.usage.contract import UsageStore
from ....streams.contract import StreamManager
from ....types import (
    Claimable,
    InterruptFlag,
    Owner,
    RunRecord,
    SessionState,
    SessionStatus,
    StatusConflict,
    StatusSwapped,
    SubSessionRef,
)
from ..beside import OF_STREAMS, SqlBeside
from ..driver import BatchRefused, Row, SqlDriver, Statement
from ..queries import Queries
from . import rows
from .guarded_batch import CommitBatch, cell_name, cell_names_text
from .listing import claimable_statements, count_statement, merged_page, page_statements, prefix_statement
from .orphans import drop_orphan_statement, orphans_statement

TABLES_OF_A_SESSION = (
    "__agents_messages",
    "__agents_custom_state",
    "__agents_past",
    "__agents_staging",
    "__agents_checkpoints",
    "__agents_runs",
    "__agents_sub_session_refs",
    "__agents_interrupt_flags",
    "__agents_session_labels",
    "__agents_branches",
    "__agents_states",
)
"""The tables of a session. Sessions and branches come last: the tree and its shelves are found through them."""
TABLES_BELOW = TABLES_OF_A_SESSION[:-1]

ALL_ROWS = 2**53 - 1
"""A limit that no table reaches, small enough for JavaScript."""

_REASONS = frozenset(get_args(GuardReason))


class SqlStateStore(StateStoreBase):
    """A state store on a database that speaks SQL and is migrated already."""

    finds_prefixes = True

    def __init__(
        self,
        driver: SqlDriver,
        *,
        prefix: str = "",
        clock: Clock = system_clock,
        ids: IdSource = random_id,
        beside: SqlBeside | None = None,
    ) -> None:
        super().__init__(clock=clock, ids=ids)
        self._beside = beside
        self._driver = driver
        self._queries = Queries("state/queries", driver.dialect, prefix)

    async def _write_batch(self, statements: list[Statement]) -> list[list[Row]]:
        try:
            return await self._driver.batch(statements)
        except BatchRefused as refused:
            raise as_commit_refusal(refused) from refused

    async def _read_batch(self, *statements: Statement) -> list[list[Row]]:
        return await self._driver.batch(statements, read_only=True)

    # -- writing

    async def _apply(self, commit: Commit, want: Iterable[CellName] = ()) -> tuple[Applied, dict[CellName, str | None]]:
        batch = CommitBatch(self._queries, commit, want, self._driver.max_parameter_bytes)
        if commit.along is None or self._beside is None:
            return batch.applied(await self._write_batch(batch.statements))
        await self._beside.prepare()
        append, usage = self._beside.statements(commit.along)
        try:
            answers = await self._driver.batch([*append, *usage, *batch.statements])
        except BatchRefused as refused:
            if refused.reason not in OF_STREAMS:
                raise as_commit_refusal(refused) from refused
            return await self._beside.refused(commit, commit.along, refused), {}
        applied, cells = batch.applied(answers[len(append) + len(usage) :])
        sequence = await self._beside.landed(commit.along, answers[: len(append)])
        return applied._replace(sequence=sequence), cells

    def carries(self, streams: StreamManager, usage: UsageStore | None) -> bool:
        return self._beside is not None and self._beside.holds(streams, usage)

    async def _swap_status(
        self,
        session_id: str,
        expected: tuple[str, ...],
        new: SessionStatus,
        *,
        also: Mapping[str, Any],
        expected_version: int | None,
        owner: Owner | None,
        due_at: int | None,
        now: int,
    ) -> StatusSwapped | StatusConflict | None:
        columns = (*rows.swap_columns(also), *rows.owner_columns(owner), due_at)
        swapped, present = await self._write_batch(
            [
                self._queries("swap_status", session_id, new, encode(list(expected)), expected_version, now, *columns),
                self._queries("read_status", session_id),
            ]
        )
        if swapped:
            return StatusSwapped(swapped[0][0])
        if not present:
            return None
        status, version, incarnation = present[0]
        return None if owner is not None and owner.incarnation != incarnation else StatusConflict(status, version)

    async def _update_run(
        self, run_id: str, changes: Mapping[str, Any], allowed_from: tuple[str, ...], owner: Owner | None
    ) -> tuple[bool, RunRecord | None]:
        columns = (*rows.run_changes(changes), *rows.owner_columns(owner))
        changed, found = await self._write_batch(
            [
                self._queries("update_run", run_id, encode(list(allowed_from)), *columns),
                self._queries("read_run", run_id),
            ]
        )
        return bool(changed), rows.run_from_row(found[0]) if found else None

    async def _update_ref(
        self, session_id: str, sub_session_id: str, changes: Mapping[str, Any], owner: Owner | None, now: int
    ) -> SubSessionRef | None:
        columns = [rows.REF_COLUMNS.get(field, field) for field in changes]
        values = [rows.ref_value(field, value) for field, value in changes.items()]
        statements = [
            self._queries("touch_for_ref", session_id, sub_session_id, now),
            *self._owner_guard(session_id, owner),
        ]
        if columns:
            # Only what is given is set, so that two writers of different fields do not undo each other.
            settings = ", ".join(f"{column} = ?{place}" for place, column in enumerate(columns, start=3))
            sql = f"UPDATE {self._queries['refs_table']} SET {settings} WHERE session_id = ?1 AND sub_session_id = ?2"
            statements.append(Statement(sql, (session_id, sub_session_id, *values)))
        statements.append(self._queries("read_ref", session_id, sub_session_id))
        found = (await self._write_batch(statements))[-1]
        return rows.ref_from_row(found[0]) if found else None

    def _owner_guard(self, session_id: str, owner: Owner | None) -> list[Statement]:
        """Return the statement that undoes a batch unless the session belongs to the owner."""
        if owner is None:
            return []
        return [self._queries("guard_session", session_id, owner.incarnation, None, owner.epoch, None)]

    async def _delete(self, session_id: str, owner: Owner | None) -> bool:
        doomed = self._queries["delete_tree"]
        prefix = self._queries["states_table"].removesuffix("__agents_states")
        statements = [
            Statement(doomed.replace(f"{prefix}__agents_doomed", prefix + table), (session_id,))
            for table in TABLES_OF_A_SESSION
        ]
        found, *_ = await self._write_batch(
            [
                self._queries("session_exists", session_id),
                *self._owner_guard(session_id, owner),
                self._queries("delete_tree_refs", session_id),
                *statements,
            ]
        )
        return bool(found)

    async def list_orphans(self, *, limit: int = 100) -> list[str]:
        found = await self._read_batch(*(orphans_statement(self._queries, table, limit) for table in TABLES_BELOW))
        return sorted({row[0] for rows_of_table in found for row in rows_of_table})[:limit]

    async def drop_orphan(self, session_id: str) -> bool:
        statements = [drop_orphan_statement(self._queries, table, session_id) for table in TABLES_BELOW]
        return any(await self._write_batch(statements))

    # -- reading

    async def _read_session(self, session_id: str, *, custom_state: bool) -> StoredSession | None:
        if not custom_state:
            (found,) = await self._read_batch(self._queries("read_session", session_id))
            return rows.session_from_row(found[0]) if found else None
        found, cells = await self._read_batch(
            self._queries("read_session", session_id), self._queries("read_custom_state", session_id)
        )
        return rows.session_from_row(found[0], rebuilt(cells)) if found else None

    async def _read_cells(self, session_id: str, names: Iterable[CellName]) -> dict[CellName, str | None] | None:
        wanted = list(names)
        exists, found = await self._read_batch(
            self._queries("session_exists", session_id),
            self._queries("read_cells", session_id, cell_names_text(wanted)),
        )
        if not exists:
            return None
        known: dict[CellName, str | None] = dict.fromkeys(wanted)
        return known | {cell_name(key, slot): text for key, slot, text in found}

    async def _read_checkpoint(
        self, session_id: str, checkpoint_id: str | None, *, custom_state: bool
    ) -> tuple[StoredCheckpoint, dict[str, Json] | None] | None:
        made_at = None if checkpoint_id is None else checkpoint_time(session_id, checkpoint_id)
        statements = [self._queries("read_checkpoint", session_id, checkpoint_id, made_at)]
        if custom_state:
            statements.append(self._queries("read_custom_state_at", session_id, checkpoint_id, made_at))
        found, *cells = await self._read_batch(*statements)
        if not found:
            return None
        return rows.checkpoint_from_row(found[0]), rebuilt(cells[0]) if cells else None

    async def _read_checkpoints(
        self, session_id: str, limit: int, offset: int
    ) -> tuple[list[StoredCheckpoint], int] | None:
        count, found = await self._read_batch(
            self._queries("count_checkpoints", session_id),
            self._queries("read_checkpoints", session_id, limit, offset),
        )
        return ([rows.checkpoint_from_row(row) for row in found], count[0][0]) if count else None

    async def _read_staged(self, session_id: str, step_id: str) -> list[StagedRow] | None:
        exists, found = await self._read_batch(
            self._queries("session_exists", session_id), self._queries("read_staged", session_id, step_id)
        )
        return [StagedRow(*row) for row in found] if exists else None

    async def _read_messages(self, session_id: str, offset: int, limit: int | None) -> tuple[list[str], int] | None:
        most = ALL_ROWS if limit is None else limit
        page = self._page_of_messages(session_id, offset, most)
        count, found = await self._read_batch(self._queries("count_messages", session_id), page)
        return ([text for (text,) in found], count[0][0]) if count else None

    def _page_of_messages(self, session_id: str, offset: int, most: int) -> Statement:
        if offset < 0:
            return self._queries("read_last_messages", session_id, -offset, most)
        return self._queries("read_messages", session_id, offset, most)

    async def _read_conversation(
        self, session_id: str, offset: int | None, *, custom_state: bool
    ) -> StoredConversation | None:
        statements = [
            self._queries("read_session", session_id),
            self._queries("read_runs", session_id, 1),
            self._queries("read_checkpoint", session_id, None, None),
        ]
        if offset is not None:
            statements.append(self._page_of_messages(session_id, offset, ALL_ROWS))
        if custom_state:
            statements.append(self._queries("read_custom_state", session_id))
        found, runs, checkpoints, *rest = await self._read_batch(*statements)
        if not found:
            return None
        stored = rows.session_from_row(found[0], rebuilt(rest[-1]) if custom_state else None)
        messages = [] if offset is None else [text for (text,) in rest[0]]
        return rows.conversation_from_rows(stored, messages, runs, checkpoints)

    async def _read_runs(self, session_id: str, *, last: bool) -> list[RunRecord] | None:
        exists, found = await self._read_batch(
            self._queries("session_exists", session_id),
            self._queries("read_runs", session_id, 1 if last else ALL_ROWS),
        )
        return [rows.run_from_row(row) for row in reversed(found)] if exists else None

    async def _read_refs(self, session_id: str) -> list[SubSessionRef] | None:
        exists, found = await self._read_batch(
            self._queries("session_exists", session_id), self._queries("read_refs", session_id)
        )
        return [rows.ref_from_row(row) for row in found] if exists else None

    async def _read_flag(self, session_id: str) -> tuple[InterruptFlag | None] | None:
        (found,) = await self._read_batch(self._queries("read_flag", session_id))
        return (rows.flag_from_row(found[0]),) if found else None

    async def _read_branches(self, session_id: str) -> dict[str, str] | None:
        exists, found = await self._read_batch(
            self._queries("session_exists", session_id), self._queries("read_branches", session_id)
        )
        return dict(found) if exists else None

    async def _read_branch_state(self, session_id: str, branch_id: str) -> str | None:
        (found,) = await self._read_batch(self._queries("read_branch_state", session_id, branch_id))
        return found[0][0] if found else None

    async def _scan_sessions(
        self, wanted: SessionFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[SessionState], int | None]:
        pages = page_statements(self._queries, wanted, limit + offset)
        counting = [count_statement(self._queries, wanted)] if count else []
        results = await self._read_batch(*pages, *counting)
        found = merged_page(results[: len(pages)], limit, offset)
        return [rows.session_from_row(row).state for row in found], results[-1][0][0] if count else None

    async def _scan_prefix(self, id_prefix: str, user_id: str | None, limit: int) -> list[SessionState]:
        (found,) = await self._read_batch(prefix_statement(self._queries, id_prefix, user_id, limit))
        return [rows.session_from_row(row).state for row in found]

    async def _scan_claimable(self, wanted: ClaimableFilter, *, limit: int, offset: int) -> list[Claimable]:
        results = await self._read_batch(*claimable_statements(self._queries, wanted, limit + offset))
        found = [rows.claimable_from_row(row) for rows_of_one in results for row in rows_of_one]
        found.sort(key=ClaimablePlace.of)
        return found[offset : offset + limit]

    async def _next_due(self, now: int) -> int | None:
        ((moments,),) = await self._read_batch(self._queries("next_due", now))
        return min((each for each in moments if each is not None), default=None)


def rebuilt(cells: Iterable[Sequence[str]]) -> dict[str, Json]:
    """Return custom state from rows of `read_custom_state`, in which a key's own cell comes before those below it.

    Keys and names are stored with JSON's escapes, so they are JSON as soon as they have quotes around them.
    """
    texts: dict[str, list[str]] = {}
    try:
        for key, slot, text in cells:
            if not slot:
                texts[key] = [text]
            elif slot[0] == "#":
                texts[key].append(text)
            else:
                texts[key].append(f'"{slot[1:]}":{text}')
    except KeyError as error:
        raise StoreCorrupt(f"Custom state has cells below key {error}, but not the key itself.") from error
    return rebuild((f'"{key}"', text, below) for key, (text, *below) in texts.items())


def as_commit_refusal(refused: BatchRefused) -> Exception:
    reason = refused.reason
    if reason.endswith("__agents_states"):
        return CommitRefused("exists")
    if reason.endswith("__agents_runs"):
        return CommitRefused("run")
    if reason in _REASONS:
        return CommitRefused(reason)  # type: ignore[arg-type]  # it is one of them
    return StoreError(f"The database refused a write for an unexpected reason: {reason}.")
