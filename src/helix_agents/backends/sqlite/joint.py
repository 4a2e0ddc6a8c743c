"""Commits that take chunks and usage along, in the transaction of a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache

import msgspec

from ...stores.state.commit import CommitRefused
from ..sql_shared.driver import BatchRefused, Statement
from ..sql_shared.state.planned_commit import Answer, PlannedCommits, Request, planned_commits
from ..sql_shared.streams.planned_append import Appended, AppendPlan, PlannedAppends, planned_appends

Load = tuple[Request, AppendPlan | None, list[Statement], int]
"""A commit, its append, the statements of its usage, and how many chunks come after the checkpoint's place."""


class JointCommits:
    """Append, note, commit, for tables with one prefix."""

    def __init__(self, commits: PlannedCommits, appends: PlannedAppends) -> None:
        self._commits = commits
        self._appends = appends

    def run(self, connection: sqlite3.Connection, loads: Sequence[Load]) -> list[tuple[Answer, Appended]]:
        """Make all of it visible. Raises if one is refused: what came before it has to be undone with it."""
        requests: list[Request] = []
        places: list[Appended] = []
        for (commit, want), plan, noting, after in loads:
            appended = (0, []) if plan is None else self._appends.one(connection, plan)
            if isinstance(appended, BatchRefused):
                raise appended
            for statement in noting:
                connection.execute(*statement)
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
    """The one for tables with that prefix: stores that share a driver share transactions by sharing this."""
    return JointCommits(planned_commits(prefix), planned_appends(prefix))
