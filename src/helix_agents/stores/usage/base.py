"""The UsageStore contract on five backend verbs. Arguments are checked and sums combined here, for all backends.

A backend stores entries, finds descendants of a session, and computes sums; it does not validate.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from ...clock import Clock, system_clock
from ...codec import Json
from ...errors import InvalidArgument, shown
from ...ids import ensure_id
from ...types import Page
from ..paging import ensure_limit, ensure_offset, page_of
from .contract import (
    CallTotals,
    CustomEntry,
    SubagentEntry,
    TokensEntry,
    TokenTotals,
    ToolEntry,
    UsageEntry,
    UsageKind,
    UsageRollup,
    UsageStore,
)

KINDS: tuple[UsageKind, ...] = get_args(UsageKind)

_NAMES: tuple[str, ...] = ("run_id", "source", "parent_session_id", "incarnation")
_NAMES += ("model", "tool_name", "sub_session_id", "agent_type", "name")


class UsageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of `query_usage`; None means any."""

    session_id: str | None = None
    run_id: str | None = None
    kinds: tuple[UsageKind, ...] | None = None
    model: str | None = None
    tool_name: str | None = None
    source: str | None = None
    timestamp_from: int | None = None
    timestamp_to: int | None = None
    other_than: str | None = None
    """An incarnation; matches entries that have another one."""


class UsageSums(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over entries of one kind and name (model, tool name, agent type, custom name)."""

    kind: UsageKind
    name: str
    calls: int = 0
    failures: int = 0
    duration_ms: int = 0
    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0
    cache_written: int = 0
    total: int = 0
    amount: int | float = 0


class UsageStoreBase(UsageStore):
    """A usage store without the storage."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._clock = clock

    # -- what a backend supplies

    @abstractmethod
    async def _insert(self, entries: list[UsageEntry]) -> int:
        """Store the entries whose `(session_id, id)` is new, with the links they name; return how many. *Atomic.*"""

    @abstractmethod
    async def _entries(self, session_id: str, kinds: tuple[UsageKind, ...]) -> list[UsageEntry]:
        """Return the entries of a session, by `(timestamp, id)`."""

    @abstractmethod
    async def _sums(self, session_id: str, include_sub_sessions: bool) -> Iterable[UsageSums]:
        """Return partial sums of a session (and its descendants); kind and name may repeat."""

    @abstractmethod
    async def _select(
        self, wanted: UsageFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[UsageEntry], int | None]:
        """Return at most `limit` entries from `offset`, newest first, and the total count if requested."""

    @abstractmethod
    async def _delete(self, session_id: str, include_sub_sessions: bool) -> int:
        """Delete the session's entries; with descendants, also theirs and the links between them. *Atomic.*"""

    @abstractmethod
    async def _delete_life(self, session_id: str, incarnation: str) -> int:
        """Delete the entries of a session that have this incarnation or none."""

    # -- the contract

    async def record_entry(self, entry: UsageEntry | Mapping[str, Json]) -> bool:
        return await self.record_entries([entry]) == 1

    async def record_entries(self, entries: Iterable[UsageEntry | Mapping[str, Json]]) -> int:
        checked = self.checked(entries)
        return await self._insert(checked) if checked else 0

    def checked(self, entries: Iterable[UsageEntry | Mapping[str, Json]]) -> list[UsageEntry]:
        """Return entries in stored form, for a write that carries them."""
        now = self._clock()
        return [_checked(entry, now) for entry in entries]

    async def get_entries(
        self,
        session_id: str,
        *,
        kinds: UsageKind | Iterable[UsageKind] | None = None,
        incarnation: str | None = None,
    ) -> list[UsageEntry]:
        ensure_id(session_id, "session_id")
        life, wanted = _id_or_none("incarnation", incarnation), _kinds(kinds)
        found = [] if wanted == () else await self._entries(session_id, wanted or KINDS)
        return found if life is None else [entry for entry in found if entry.incarnation in (None, life)]

    async def get_rollup(
        self, session_id: str, *, include_sub_sessions: bool = True, incarnation: str | None = None
    ) -> UsageRollup:
        ensure_id(session_id, "session_id")
        if incarnation is not None:
            foreign = UsageFilter(session_id=session_id, other_than=ensure_id(incarnation, "incarnation"))
            if (await self._select(foreign, limit=1, offset=0, count=False))[0]:
                return _rollup(await self._sums_of_life(session_id, include_sub_sessions, incarnation))
        return _rollup(await self._sums(session_id, include_sub_sessions))

    async def _sums_of_life(self, session_id: str, include_sub_sessions: bool, incarnation: str) -> list[UsageSums]:
        """Sum only this incarnation of the session, and only the sub-agents that its entries name."""
        own = await self.get_entries(session_id, incarnation=incarnation)
        sums = [sums_of(entry) for entry in own]
        if include_sub_sessions:
            for child in {entry.sub_session_id: None for entry in own if isinstance(entry, SubagentEntry)}:
                sums += await self._sums(child, True)
        return sums

    async def query_usage(
        self,
        *,
        session_id: str | None = None,
        run_id: str | None = None,
        kinds: UsageKind | Iterable[UsageKind] | None = None,
        model: str | None = None,
        tool_name: str | None = None,
        source: str | None = None,
        timestamp_from: int | None = None,
        timestamp_to: int | None = None,
        limit: int = 50,
        offset: int = 0,
        count: bool = True,
    ) -> Page[UsageEntry]:
        wanted = UsageFilter(
            session_id=_id_or_none("session_id", session_id),
            run_id=_id_or_none("run_id", run_id),
            kinds=_kinds(kinds),
            model=_id_or_none("model", model),
            tool_name=_id_or_none("tool_name", tool_name),
            source=_id_or_none("source", source),
            timestamp_from=_time_or_none("timestamp_from", timestamp_from),
            timestamp_to=_time_or_none("timestamp_to", timestamp_to),
        )
        ensure_limit(limit)
        ensure_offset(offset)
        if wanted.kinds == ():
            return page_of([], 0 if count else None, limit=limit, offset=offset)
        rows, total = await self._select(wanted, limit=limit + 1, offset=offset, count=count)
        return page_of(rows, total, limit=limit, offset=offset)

    async def delete_entries(
        self, session_id: str, *, include_sub_sessions: bool = True, incarnation: str | None = None
    ) -> int:
        if incarnation is not None:
            return await self._delete_life(ensure_id(session_id, "session_id"), ensure_id(incarnation, "incarnation"))
        return await self._delete(ensure_id(session_id, "session_id"), include_sub_sessions)


def _checked(entry: UsageEntry | Mapping[str, Json], now: int) -> UsageEntry:
    """Return the entry with its defaults filled in. Raises `InvalidArgument`."""
    data: Any = entry
    try:
        # Structs do not check their fields when they are made, so both forms go through the same check.
        data = msgspec.to_builtins(entry) if isinstance(entry, msgspec.Struct) else dict(entry)
        made: UsageEntry = msgspec.convert(data, UsageEntry)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise InvalidArgument(f"Invalid usage entry {shown(data)}: {error}.") from error
    ensure_id(made.id, "id of a usage entry")
    ensure_id(made.session_id, "session_id")
    for field in _NAMES:
        _id_or_none(field, getattr(made, field, None))
    if made.session_id in (made.parent_session_id, getattr(made, "sub_session_id", None)):
        raise InvalidArgument(f"Usage entry {made.id!r} makes session {made.session_id!r} its own descendant.")
    if isinstance(made, TokensEntry) and made.total is None:
        made = msgspec.structs.replace(made, total=made.prompt + made.completion)
    return made if made.timestamp else msgspec.structs.replace(made, timestamp=now)


def _id_or_none(what: str, value: str | None) -> str | None:
    return None if value is None else ensure_id(value, what)


def _time_or_none(what: str, value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**53):
        raise InvalidArgument(f"{what} must be epoch milliseconds, not {shown(value)}.")
    return value


def _kinds(kinds: UsageKind | Iterable[UsageKind] | None) -> tuple[UsageKind, ...] | None:
    if kinds is None:
        return None
    wanted: set[str] = {kinds} if isinstance(kinds, str) else set(kinds)
    if unknown := wanted.difference(KINDS):
        raise InvalidArgument(f"Unknown usage kind {sorted(unknown)[0]!r}. Known kinds: {', '.join(KINDS)}.")
    return tuple(kind for kind in KINDS if kind in wanted)


def sums_of(entry: UsageEntry) -> UsageSums:
    """Return the sums over this one entry."""
    match entry:
        case TokensEntry():
            return UsageSums(
                kind="tokens",
                name=entry.model,
                prompt=entry.prompt,
                completion=entry.completion,
                reasoning=entry.reasoning,
                cached=entry.cached,
                cache_written=entry.cache_written,
                total=entry.total or 0,
            )
        case ToolEntry() | SubagentEntry():
            return UsageSums(
                kind=entry.kind,
                name=entry.tool_name if isinstance(entry, ToolEntry) else entry.agent_type,
                calls=1,
                failures=0 if entry.success else 1,
                duration_ms=entry.duration_ms,
            )
        case CustomEntry():
            return UsageSums(kind="custom", name=entry.name, amount=entry.value)


def _rollup(sums: Iterable[UsageSums]) -> UsageRollup:
    tokens = TokenTotals()
    by_model: dict[str, TokenTotals] = {}
    tools: dict[str, CallTotals] = {}
    subagents: dict[str, CallTotals] = {}
    custom: dict[str, int | float] = {}
    for each in sums:
        if each.kind == "tokens":
            tokens = _add_tokens(tokens, each)
            by_model[each.name] = _add_tokens(by_model.get(each.name, TokenTotals()), each)
        elif each.kind == "custom":
            custom[each.name] = custom.get(each.name, 0) + each.amount
        else:
            named = tools if each.kind == "tool" else subagents
            named[each.name] = _add_calls(named.get(each.name, CallTotals()), each)
    return UsageRollup(tokens=tokens, by_model=by_model, tools=tools, subagents=subagents, custom=custom)


def _add_tokens(totals: TokenTotals, each: UsageSums) -> TokenTotals:
    return TokenTotals(
        prompt=totals.prompt + each.prompt,
        completion=totals.completion + each.completion,
        reasoning=totals.reasoning + each.reasoning,
        cached=totals.cached + each.cached,
        cache_written=totals.cache_written + each.cache_written,
        total=totals.total + each.total,
    )


def _add_calls(totals: CallTotals, each: UsageSums) -> CallTotals:
    return CallTotals(
        calls=totals.calls + each.calls,
        failures=totals.failures + each.failures,
        duration_ms=totals.duration_ms + each.duration_ms,
    )
