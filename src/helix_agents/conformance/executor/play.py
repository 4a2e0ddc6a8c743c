"""Runs the scenario of `cast.py`, undisturbed or interrupted and continued, and compares what it leaves behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...executor import AgentExecutor
from ...executor.step.decisions import step_id_of
from ..expect import expect, expect_same
from ..harness import StoreSet
from .cast import ANSWERS, ROOT_STATE
from .harness import custom_state, family, transcript
from .view import View

AGENT = "author"
INPUT = "Write the report."
MARKERS = ("stream_rewound", "stream_resync")

FAILED = 3
"""The exit code of a worker that raised, rather than being killed or stopping normally."""


@dataclass(frozen=True)
class Remains:
    """What a run of the scenario leaves: the conversations, the states, and what a reader of the stream has."""

    transcripts: dict[str, Any]
    states: dict[str, Any]
    view: dict[str, Any]


async def begin_or_go_on(executor: AgentExecutor, session_id: str) -> str:
    """Do the next thing that the session needs, wait until it stops, and return its status."""
    if await executor.services.store.get_current_run(session_id) is None:
        handle = await executor.execute(AGENT, INPUT, session_id=session_id)
    else:
        handle = await executor.resume(AGENT, session_id)
    return (await handle.result()).status


async def answer_all(executor: AgentExecutor, session_id: str) -> None:
    """Respond to every question of a suspended session, through the root."""
    handle = await executor.get_handle(AGENT, session_id)
    if handle is None or not (await handle.get_state()).status.startswith("suspended"):
        return
    for wait in (await handle.result()).suspended:
        answer: dict[str, Any] = ANSWERS[wait.tool_name]
        await executor.submit_tool_result(session_id, wait.tool_call_id, **answer)


async def is_over(stores: StoreSet, session_id: str) -> bool:
    """Return whether the scenario has ended, including its run record."""
    session = await stores.state.load_state(session_id)
    run = await stores.state.get_current_run(session_id)
    return (
        session is not None
        and session.status in ("completed", "failed")
        and run is not None
        and run.status != "running"
    )


async def staged_calls(stores: StoreSet, session_id: str) -> set[str]:
    """Return the finished and staged calls of the session and its descendants, by their names in the journal."""
    found: set[str] = set()
    for member in await family(stores, session_id):
        session = await stores.state.load_state(member)
        run = await stores.state.get_current_run(member)
        if session is None or run is None:
            continue
        for row in await stores.state.list_staged(member, step_id_of(session, run.run_id)):
            if row.kind == "call":
                found.add(f"{member} {row.tool_call_id}")
    return found


class StagedLedger:
    """Records how often calls had run when they were first seen staged: they must not run again."""

    def __init__(self) -> None:
        self._runs: dict[str, int] = {}

    def note(self, staged: Iterable[str], journal: Iterable[str]) -> None:
        """Record after a crash which calls are staged and what has been executed."""
        count = Counter(journal)
        for call in staged:
            self._runs.setdefault(call, count[call])

    def settle(self, journal: Iterable[str]) -> None:
        """Fail if one of them has run again by the end of the scenario."""
        count = Counter(journal)
        again = {call: count[call] for call, before in self._runs.items() if count[call] != before}
        expect_same(again, {}, "finished and staged calls that ran again")


async def remains_of(stores: StoreSet, session_id: str, view: View) -> Remains:
    """Return what a run of the scenario left, without the name of its session."""
    members = await family(stores, session_id)
    for member in members:
        await expect_marked_gaps(stores, member)
    transcripts = {member: await transcript(stores, member) for member in members}
    states = {member: await custom_state(stores, member) for member in members}
    expect_same(view.state(ROOT_STATE), states[session_id], "the state that the reader has")
    return Remains(
        _nameless(transcripts, session_id), _nameless(states, session_id), _nameless(view.summary(), session_id)
    )


async def expect_marked_gaps(stores: StoreSet, stream_id: str) -> None:
    """Fail unless each gap in the sequences of a stream is followed by the marker that explains it."""
    stored = await stores.streams.get_all_chunks(stream_id)
    for before, after in pairwise(stored):
        if after.sequence != before.sequence + 1 and after.chunk["type"] not in MARKERS:
            places = f"{before.sequence} to {after.sequence}"
            expect(False, f"stream {stream_id!r} jumps from {places}, a {after.chunk['type']}, without a marker")


def expect_same_remains(actual: Remains, expected: Remains, what: str) -> None:
    """Fail unless two runs of the scenario left the same."""
    expect_same(actual.transcripts, expected.transcripts, f"{what}: the conversations")
    expect_same(actual.states, expected.states, f"{what}: the states")
    expect_same(actual.view, expected.view, f"{what}: what the reader has")


def _nameless(value: Any, session_id: str) -> Any:
    return json.loads(json.dumps(value).replace(session_id, "SESSION"))
