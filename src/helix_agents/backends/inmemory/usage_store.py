"""Usage entries in dictionaries: by session, with the children of each session."""

from __future__ import annotations

from collections.abc import Iterable

from ...clock import Clock, system_clock
from ...stores.usage.base import UsageFilter, UsageStoreBase, UsageSums, sums_of
from ...stores.usage.contract import SubagentEntry, UsageEntry, UsageKind


class InMemoryUsageStore(UsageStoreBase):
    """UsageStore of one process; gone when it ends."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        super().__init__(clock=clock)
        self._sessions: dict[str, dict[str, UsageEntry]] = {}
        self._below: dict[str, set[str]] = {}

    async def _insert(self, entries: list[UsageEntry]) -> int:
        return self.insert_now(entries)

    def insert_now(self, entries: Iterable[UsageEntry]) -> int:
        """Store entries without waiting, so that another store's write can carry them; return how many were new."""
        new = 0
        for given in entries:
            kept = self._sessions.setdefault(given.session_id, {})
            new += given.id not in kept
            # What was kept first counts, also for where the session belongs.
            self._link(kept.setdefault(given.id, given))
        return new

    async def _entries(self, session_id: str, kinds: tuple[UsageKind, ...]) -> list[UsageEntry]:
        kept = self._sessions.get(session_id, {}).values()
        return sorted((each for each in kept if each.kind in kinds), key=lambda each: (each.timestamp, each.id))

    async def _sums(self, session_id: str, include_sub_sessions: bool) -> Iterable[UsageSums]:
        tree = self._tree(session_id) if include_sub_sessions else {session_id}
        return [sums_of(entry) for each in tree for entry in self._sessions.get(each, {}).values()]

    async def _select(
        self, wanted: UsageFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[UsageEntry], int | None]:
        sessions = self._sessions
        searched = sessions.values() if wanted.session_id is None else [sessions.get(wanted.session_id, {})]
        found = [entry for kept in searched for entry in kept.values() if _fits(entry, wanted)]
        found.sort(key=lambda each: (each.timestamp, each.session_id, each.id), reverse=True)
        return found[offset : offset + limit], len(found) if count else None

    async def _delete(self, session_id: str, include_sub_sessions: bool) -> int:
        if not include_sub_sessions:
            return len(self._sessions.pop(session_id, {}))
        tree = self._tree(session_id)
        for each in tree:
            self._below.pop(each, None)
        for parent in [parent for parent, below in self._below.items() if below & tree]:
            self._below[parent] -= tree
            if not self._below[parent]:
                del self._below[parent]
        return sum(len(self._sessions.pop(each, {})) for each in tree)

    async def _delete_life(self, session_id: str, incarnation: str) -> int:
        kept = self._sessions.get(session_id, {})
        doomed = [each.id for each in kept.values() if each.incarnation in (None, incarnation)]
        for entry_id in doomed:
            del kept[entry_id]
        if not kept:
            self._sessions.pop(session_id, None)
        return len(doomed)

    def _link(self, entry: UsageEntry) -> None:
        if entry.parent_session_id:
            self._below.setdefault(entry.parent_session_id, set()).add(entry.session_id)
        if isinstance(entry, SubagentEntry):
            self._below.setdefault(entry.session_id, set()).add(entry.sub_session_id)

    def _tree(self, session_id: str) -> set[str]:
        """Return the session and all its descendants; a set, so that a cycle ends."""
        tree = {session_id}
        todo = [session_id]
        while todo:
            new = self._below.get(todo.pop(), set()) - tree
            tree |= new
            todo += new
        return tree


def _fits(entry: UsageEntry, wanted: UsageFilter) -> bool:
    return (
        (wanted.run_id is None or entry.run_id == wanted.run_id)
        and (wanted.kinds is None or entry.kind in wanted.kinds)
        and (wanted.model is None or getattr(entry, "model", None) == wanted.model)
        and (wanted.tool_name is None or getattr(entry, "tool_name", None) == wanted.tool_name)
        and (wanted.source is None or entry.source == wanted.source)
        and (wanted.other_than is None or entry.incarnation not in (None, wanted.other_than))
        and (wanted.timestamp_from is None or entry.timestamp >= wanted.timestamp_from)
        and (wanted.timestamp_to is None or entry.timestamp < wanted.timestamp_to)
    )
