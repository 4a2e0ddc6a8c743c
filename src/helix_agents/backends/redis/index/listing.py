"""List sessions: walk the smallest index that a filter allows, read each session, and keep those that match.

The index may hold entries that are not, or no longer, true. What is listed is what the sessions themselves say; a wrong
entry that is met on the way is removed. A page costs what it shows; an exact total costs a look at everything that the
chosen index holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, get_args

from ....stores.state.commit import SessionFilter
from ....types import SessionState, SessionStatus
from ..client.connection import Command
from ..client.servers import Servers
from ..keys import SessionKeys, labels_of, member_of, metadata_facet, session_of, status_facet
from ..sessions.session_hash import as_fields, as_texts, from_hash
from .sessions import EXPIRES, SessionIndex

PAGE = 200
SAMPLE = 200
"""How many sessions are read to estimate the count of a status; smaller counts are exact."""


class Found(NamedTuple):
    """An entry of the index with the session that it names; None if there is none."""

    facets: tuple[str, ...]
    created_at: int
    session_id: str
    state: SessionState | None


class Listing:
    """Finds sessions by filters."""

    def __init__(self, servers: Servers, index: SessionIndex, prefix: str) -> None:
        self._servers = servers
        self._index = index
        self._prefix = prefix

    async def scan(
        self, wanted: SessionFilter, *, limit: int, offset: int, count: bool
    ) -> tuple[list[SessionState], int | None]:
        """Return up to `limit` sessions that match, newest first, and how many match in all."""
        page: list[SessionState] = []
        total = skipped = 0
        async for state in self._matching(wanted, from_start=count):
            total += 1
            if wanted.after is not None and (state.created_at, state.session_id) >= wanted.after:
                continue
            if skipped < offset:
                skipped += 1
            elif len(page) < limit:
                page.append(state)
            if not count and len(page) == limit:
                break
        return page, total if count else None

    async def count_by_status(self) -> dict[SessionStatus, int]:
        """Return how many sessions the index has by status, less the share that a sample shows to be outdated."""
        statuses: tuple[SessionStatus, ...] = get_args(SessionStatus)
        return {status: await self._count(status_facet(status)) for status in statuses}

    async def _count(self, facet: str) -> int:
        key = self._index.keys.facet(facet)
        commands: list[Command] = [("ZCARD", key), ("ZRANDMEMBER", key, SAMPLE)]
        size, reply = await self._servers.run(self._index.keys.deadlines, commands)
        sample = await self._look(dict.fromkeys(as_texts(reply or ()), (facet,)))
        true = sum([await self._is_true(found) for found in sample])
        return round(size * true / len(sample)) if sample else 0

    async def children(self, session_id: str) -> list[SessionState]:
        """Return the sessions whose parent this is."""
        wanted = SessionFilter(parent_session_id=session_id)
        return [state async for state in self._matching(wanted, from_start=True)]

    async def _matching(self, wanted: SessionFilter, *, from_start: bool) -> AsyncIterator[SessionState]:
        facets = await self._narrowest(wanted)
        walk = self._walk_expiring(wanted) if facets == [EXPIRES] else self._walk(wanted, facets, from_start)
        async for entries in walk:
            for found in await self._look(entries):
                if not await self._is_true(found):
                    continue
                if found.state is not None and wanted.matches(found.state):
                    yield found.state

    # -- the index

    async def _narrowest(self, wanted: SessionFilter) -> list[str]:
        """Return the facet, or the group of facets, with the fewest entries."""
        groups = [["all"]]
        if wanted.user_id is not None:
            groups.append([f"user={wanted.user_id}"])
        if wanted.agent_type is not None:
            groups.append([f"agent={wanted.agent_type}"])
        if wanted.statuses:
            groups.append([status_facet(status) for status in dict.fromkeys(wanted.statuses)])
        if wanted.parent_session_id is not None:
            groups.append([f"parent={wanted.parent_session_id}"])
        elif wanted.roots_only:
            groups.append(["roots"])
        groups += [[f"tag={tag}"] for tag in wanted.tags]
        groups += [[metadata_facet(key, text)] for key, text in wanted.metadata]
        if len(groups) == 1 and wanted.expires_before is None:
            return groups[0]
        keys = self._index.keys
        commands: list[Command] = [("ZCARD", keys.facet(facet)) for group in groups for facet in group]
        if wanted.expires_before is not None:
            commands.append(("ZCOUNT", keys.expiry, "-inf", f"({wanted.expires_before}"))
            groups.append([EXPIRES])
        sizes = iter(await self._servers.run(keys.deadlines, commands))
        # Among equals the last, which says more than "all" and so meets entries that are wrong.
        sized = [(sum(next(sizes) for _ in group), -place) for place, group in enumerate(groups)]
        return groups[-min(sized)[1]]

    async def _walk(
        self, wanted: SessionFilter, facets: list[str], from_start: bool
    ) -> AsyncIterator[dict[str, tuple[str, ...]]]:
        """Yield entries page by page, newest first, each with the facets under which it was found."""
        least = "-" if wanted.created_from is None else f"[{wanted.created_from:016d}"
        most = "+" if wanted.created_to is None else f"({wanted.created_to:016d}"
        if wanted.after is not None and not from_start:
            after = f"({member_of(*wanted.after)}"
            most = after if most == "+" else min(most, after)
        keys = self._index.keys
        while True:
            commands = [("ZREVRANGEBYLEX", keys.facet(each), most, least, "LIMIT", 0, PAGE) for each in facets]
            pages = [as_texts(reply) for reply in await self._servers.run(keys.deadlines, commands)]
            # What comes after the shortest full page may be incomplete: at most PAGE in all are taken at a time.
            members = sorted(set().union(*pages), reverse=True)[:PAGE]
            if not members:
                return
            yield {
                member: tuple(facet for facet, page in zip(facets, pages, strict=True) if member in page)
                for member in members
            }
            if all(len(page) < PAGE for page in pages) and len(members) < PAGE:
                return
            most = f"({members[-1]}"

    async def _walk_expiring(self, wanted: SessionFilter) -> AsyncIterator[dict[str, tuple[str, ...]]]:
        expiry = self._index.keys.expiry
        reply = await self._servers.one(expiry, "ZRANGEBYSCORE", expiry, "-inf", f"({wanted.expires_before}")
        members = sorted(as_texts(reply), reverse=True)
        for start in range(0, len(members), PAGE):
            yield dict.fromkeys(members[start : start + PAGE], (EXPIRES,))

    # -- the sessions

    async def _look(self, entries: dict[str, tuple[str, ...]]) -> list[Found]:
        ids = [session_of(member) for member in entries]
        mains = [SessionKeys(self._prefix, session_id).main for _, session_id in ids]
        replies = await self._servers.each([(main, ("HGETALL", main)) for main in mains])
        return [
            Found(
                facets, created_at, session_id, from_hash(session_id, fields) if (fields := as_fields(reply)) else None
            )
            for facets, (created_at, session_id), reply in zip(entries.values(), ids, replies, strict=True)
        ]

    async def _is_true(self, found: Found) -> bool:
        """Return whether the session has the properties that the index says; if not, remove the entry."""
        if found.state is None:
            entered = await self._index.entered(found.session_id)
            if entered.fresh is None:
                await self._index.drop(found.session_id, [(facet, found.created_at) for facet in found.facets])
                await self._index.forget(found.session_id, entered)
            return False
        if found.created_at != found.state.created_at:
            await self._index.drop(found.session_id, [(facet, found.created_at) for facet in found.facets])
            return False
        true = {*labels_of(found.state), status_facet(found.state.status)}
        if found.state.expires_at is not None:
            true.add(EXPIRES)
        wrong = [facet for facet in found.facets if facet not in true]
        settled = True
        if any(facet.startswith("status=") for facet in wrong):
            settled = await self._index.settle_status(found.session_id, found.state.status)
        if wrong and settled:
            await self._index.drop(found.session_id, [(facet, found.created_at) for facet in wrong])
        return len(wrong) < len(found.facets)
