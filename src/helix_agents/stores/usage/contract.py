"""UsageStore: what sessions spend. The entries, their sums, and every public method with its guarantee.

- U1 once: an id recorded again in its session changes nothing, however often a caller retries.
- U2 together: the entries of one `record_entries` are all there or none of them.
- U3 tree: a rollup covers the sessions below, at any depth, each of them once. Where a session belongs is known from
  the entries themselves: `parent_session_id` of any entry below, or `sub_session_id` of a `SubagentEntry` above;
  one of them is enough. So usage needs no state store, and a rollup costs what its own tree holds.
- U4 sums: a rollup equals the sum of `get_entries` over its sessions.
- U5 query: filters combine with AND; newest first by `(timestamp, session_id, id)`.
- U6 delete: nothing is left of the entries of a session and of those below it.
- U7 lives: with an incarnation, entries of an earlier or later session with the same id are neither read nor deleted.

This file knows no storage; `stores/usage/base.py` checks the arguments, backends keep the entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Annotated, ClassVar, Literal, Self

import msgspec

from ...codec import Json
from ...types import Page

UsageKind = Literal["tokens", "tool", "subagent", "custom"]

MAX_AMOUNT = 10**15
"""The most that one number of an entry may be: far above any real use, and thousands of them add up within 64 bits."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_AMOUNT)]
Amount = (
    Annotated[int, msgspec.Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
    | Annotated[float, msgspec.Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
)


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """The fields of all entries. `id` is unique within the session; `timestamp` 0 becomes the time of recording.

    `incarnation` tells the session from others that have the same id, before or after it. An entry without one belongs
    to the id.
    """

    id: str
    session_id: str
    run_id: str | None = None
    step_count: Count | None = None
    source: str | None = None
    timestamp: Count = 0
    parent_session_id: str | None = None
    incarnation: str | None = None


class TokensEntry(_Entry, frozen=True, kw_only=True, tag="tokens"):
    """One model call. `total` None becomes prompt + completion.

    `cached` (read from the provider's cache) and `cache_written` are parts of `prompt`, `reasoning` of `completion`.
    """

    kind: ClassVar[UsageKind] = "tokens"
    model: str
    prompt: Count = 0
    completion: Count = 0
    reasoning: Count = 0
    cached: Count = 0
    cache_written: Count = 0
    total: Count | None = None


class ToolEntry(_Entry, frozen=True, kw_only=True, tag="tool"):
    """One tool call."""

    kind: ClassVar[UsageKind] = "tool"
    tool_name: str
    duration_ms: Count = 0
    success: bool = True


class SubagentEntry(_Entry, frozen=True, kw_only=True, tag="subagent"):
    """One run of a child session, recorded by its parent; makes the child a descendant of `session_id` (U3)."""

    kind: ClassVar[UsageKind] = "subagent"
    sub_session_id: str
    agent_type: str
    duration_ms: Count = 0
    success: bool = True


class CustomEntry(_Entry, frozen=True, kw_only=True, tag="custom"):
    """An amount of anything else: pages fetched, euros spent. Amounts of one name add up; integers stay integers."""

    kind: ClassVar[UsageKind] = "custom"
    name: str
    value: Amount = 1


UsageEntry = TokensEntry | ToolEntry | SubagentEntry | CustomEntry


class TokenTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts, summed."""

    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0
    cache_written: int = 0
    total: int = 0


class CallTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one tool or one type of sub-agent, summed."""

    calls: int = 0
    failures: int = 0
    duration_ms: int = 0


class UsageRollup(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of a session: `tools` by tool name, `subagents` by agent type, `custom` by name."""

    tokens: TokenTotals = TokenTotals()
    by_model: dict[str, TokenTotals] = {}
    tools: dict[str, CallTotals] = {}
    subagents: dict[str, CallTotals] = {}
    custom: dict[str, int | float] = {}


class UsageStore(ABC):
    """All usage entries of one backend.

    A session need not exist anywhere else. Bad input raises `InvalidArgument` before anything is written.
    """

    @abstractmethod
    async def record_entry(self, entry: UsageEntry | Mapping[str, Json]) -> bool:
        """Record one entry; return False if its session has that id already. *Idempotent* (U1).

        A mapping is an entry in its JSON form: its fields and `kind`.
        """

    @abstractmethod
    async def record_entries(self, entries: Iterable[UsageEntry | Mapping[str, Json]]) -> int:
        """Record entries of any sessions; return how many were new. *Atomic* (U2), *idempotent* (U1)."""

    @abstractmethod
    async def get_entries(
        self,
        session_id: str,
        *,
        kinds: UsageKind | Iterable[UsageKind] | None = None,
        incarnation: str | None = None,
    ) -> list[UsageEntry]:
        """Return the entries of one session without its children. *Ordered:* by `(timestamp, id)`.

        `incarnation`: leave out the entries of other sessions that had the id (U7).
        """

    @abstractmethod
    async def get_rollup(
        self, session_id: str, *, include_sub_sessions: bool = True, incarnation: str | None = None
    ) -> UsageRollup:
        """Return the sums over a session and its descendants (U3, U4); all zero for a session without entries.

        `incarnation`: leave out the entries of other sessions that had the id (U7).
        """

    @abstractmethod
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
        """Return entries across sessions, newest first (U5). `timestamp_from` is inclusive, `timestamp_to` exclusive.

        `limit` is 1 to 200; `total` is None with `count=False`, which saves counting.
        """

    @abstractmethod
    async def delete_entries(
        self, session_id: str, *, include_sub_sessions: bool = True, incarnation: str | None = None
    ) -> int:
        """Remove the entries of a session and of those below it (U6); return how many there were. *Idempotent.*

        `incarnation`: only those of this session, and those without one; not of those below (U7). *Atomic* then: a
        session that was created again under the id keeps its entries, however late the call comes.
        """

    async def close(self) -> None:
        """Release what this store opened itself, never what the caller passed in."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
