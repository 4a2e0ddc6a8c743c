"""Commits that carry chunks and usage, where a transaction can read before it writes: SQLite and Durable Objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache

import msgspec

from ...stores.along import Along
from ...stores.state.commit import Applied, CellName, CellTexts, Commit, CommitRefused
from .beside import OF_STREAMS, SqlBeside
from .driver import BatchRefused, Statement
from .state.planned_commit import Answer, PlannedCommits, Request, planned_commits
from .state.row_statements import RowConnection
from .state.store import as_commit_refusal
from .streams.planned_append import Appended, AppendPlan, PlannedAppends, planned_appends

Load = tuple[Request, AppendPlan | None, list[Statement], int]
"""A commit, its append, statements to run before it, and how many chunks come after the checkpoint's position."""


class JointCommits:
    """Appends, records usage and commits, for tables with one prefix."""

    def __init__(self, commits: PlannedCommits, appends: PlannedAppends) -> None:
        self._commits = commits
        self._appends = appends

    def run(self, connection: RowConnection, loads: Sequence[Load]) -> list[tuple[Answer, Appended]]:
        """Apply all loads. Raises if one is rejected: the earlier ones must then be undone with it."""
        requests: list[Request] = []
        places: list[Appended] = []
        for (commit, want), plan, noting, after in loads:
            appended = (0, []) if plan is None else self._appends.one(connection, plan)
            if isinstance(appended, BatchRefused):
                raise appended
            for statement in noting:
                connection.execute(statement.sql, statement.params)
            if plan is not None and commit.checkpoint is not None:
                place = commit.checkpoint._replace(stream_sequence=appended[0] - after)
                commit = msgspec.structs.replace(commit, checkpoint=place)
            requests.append((commit, want))
            places.append(appended)
        answers: list[tuple[Answer, Appended]] = []
        for answer, appended in zip(self._commits.run(connection, requests), places, strict=True):
            if isinstance(answer, CommitRefused):
                raise answer
            answers.append((answer, appended))
        return answers


@cache
def joint_commits(prefix: str) -> JointCommits:
    """Return the object for tables with that prefix. Stores on one driver share it, and therefore transactions."""
    return JointCommits(planned_commits(prefix), planned_appends(prefix))


async def apply_along(
    beside: SqlBeside,
    commit: Commit,
    along: Along,
    want: tuple[CellName, ...],
    run: Callable[[Load], Awaitable[tuple[Answer, Appended]]],
) -> tuple[Applied, CellTexts]:
    """Apply a commit with the chunks and usage it carries. `run` runs `JointCommits` in a transaction."""
    streams = beside.streams
    plan = None if along.append is None else streams.planned(along.append)
    before = [] if along.start is None else streams.starting_statements(along.start)
    try:
        answer, appended = await run(((commit, want), plan, [*before, *beside.spent(along)], along.after))
    except BatchRefused as refused:
        if refused.reason not in OF_STREAMS:
            raise as_commit_refusal(refused) from refused
        return await beside.refused(commit, along, refused), {}
    (applied, cells), (sequence, floors) = answer, appended
    if along.append is not None:
        await streams.trim(along.append.stream_id, floors)
    if along.start is not None:
        await streams.started(along.start)
    if along.stream_id is not None:
        streams.changed(along.stream_id)
    return applied._replace(sequence=sequence), cells
