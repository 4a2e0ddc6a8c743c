"""AG-UI and AI SDK streams of the sessions that the executor's checks leave, joined at every chunk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from helix_agents.chunks import Chunk
from helix_agents.codec import Json, encode
from helix_agents.conformance.executor.harness import EXECUTOR
from helix_agents.conformance.harness import StoreSet
from helix_agents.conformance.run import run_check
from helix_agents.executor.session.questions import all_waiting
from helix_agents.server.wire.feed import as_question
from helix_agents.server.wire.translate import state_at
from helix_agents.types import SessionState
from tests.executor.harnesses import MemoryHarness
from tests.server.test_formats import KINDS, Turn, encoded, judge

AT_ONCE = 3000


class Heard(MemoryHarness):
    """Keeps the streams of the sessions that a check leaves behind, each with what a server would know about it."""

    turns: ClassVar[dict[str, Turn]] = {}

    async def dispose(self) -> None:
        if self._stores is not None:
            page = await self._stores.state.list_sessions(limit=200)
            for session in page.items:
                if (turn := await _turn(self._stores, session)) is not None:
                    self.turns[encode(json.loads(json.dumps(turn)))] = turn
        await super().dispose()


async def _turn(stores: StoreSet, listed: SessionState) -> Turn | None:
    session = await stores.state.load_state(listed.session_id)
    run = await stores.state.get_current_run(listed.session_id)
    assert session is not None
    if await stores.streams.get_stream_info(session.stream_id) is None:
        return None
    chunks: list[Chunk] = [stored.chunk for stored in await stores.streams.get_all_chunks(session.stream_id)]
    state = await state_at(stores.state, session, run.first_step if run else 0)
    last: tuple[str, dict[str, Json]] = ("", {})  # its process died: the connection is cut
    if session.status == "completed":
        last = ("end", {"status": "completed", "output": session.output})
    elif session.status == "failed":
        last = ("fail", {"error": session.error})
    elif session.status != "active":
        waits = [as_question(wait) for wait in await all_waiting(stores.state, session, 0)]
        last = ("pause", {"status": session.status, "suspended": waits})
    return state, chunks, last


async def turns_of_checks(*only: str) -> list[Turn]:
    """Return the last turns of all sessions of these checks; those of the same text once."""
    Heard.turns = {}
    for check in EXECUTOR.select(only):
        result = await run_check(check, Heard)
        assert result.outcome != "failed", f"{check.name}: {result.detail}"
    return list(Heard.turns.values())


def refused(turns: list[Turn], folder: Path) -> list[str]:
    """Return what the official clients do not accept, in both formats and from every position."""
    streams = [
        {"kind": kind, "name": f"{kind} of turn {number} from {place}", "events": encoded(kind, turn, place)}
        for number, turn in enumerate(turns)
        for kind in KINDS
        for place in range(len(turn[1]) + 1)
    ]
    answers = [
        each for start in range(0, len(streams), AT_ONCE) for each in judge(streams[start : start + AT_ONCE], folder)
    ]
    return [f"{answer['name']}: {answer['problem']}" for answer in answers if answer["problem"]]


async def test_both_clients_accept_the_streams_of_some_checks(tmp_path: Path) -> None:
    turns = await turns_of_checks(
        "X3.dead_after_an_answer",
        "X5",
        "X6",
        "X10.a_question_of_its_own",
        "X10.what_people_say",
        "X10.undo_unknown",
        "S17.two_editors",
    )
    assert len(turns) > 10
    assert refused(turns, tmp_path) == []


@pytest.mark.soak
async def test_both_clients_accept_the_streams_of_all_checks(tmp_path: Path) -> None:
    turns = await turns_of_checks()
    print(f"{len(turns)} turns, {sum(len(turn[1]) for turn in turns)} chunks")
    assert refused(turns, tmp_path) == []
