"""Users of the sessions: they submit, answer, read along, and remember what was acknowledged to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from helix_agents import AlreadyRunning, HelixError, Stores, StoreUnavailable
from helix_agents.errors import IdempotencyConflict, NotResumable, RunLost, StreamError, VersionConflict
from helix_agents.executor import AgentExecutor
from tests.soak.workload import agent

EXPECTED = (AlreadyRunning, NotResumable, RunLost, StoreUnavailable, StreamError, VersionConflict)
"""What others and the weather may do to a caller. All else is a fault."""

LOOK_AGAIN_SECONDS = 0.1


class Session:
    """One session as its user knows it."""

    def __init__(self, session_id: str, asks: list[bool]) -> None:
        self.session_id = session_id
        self.asks = asks
        """For each turn, whether it asks a person."""
        self.acknowledged = 0
        """How many turns were acknowledged."""
        self.is_over = False
        self.read: list[int] = []
        """The sequences that a reader got, in the order in which they came."""


class Client:
    """One user, who does a few things with one session after the other."""

    def __init__(self, stores: Stores, executor: AgentExecutor, faults: list[str]) -> None:
        self._stores = stores
        self._executor = executor
        self._faults = faults

    async def live(self, session: Session) -> None:
        """Take a session through all its turns, whatever happens."""
        reading = asyncio.create_task(self._read(session))
        try:
            while not session.is_over:
                try:
                    await self._go_on(session)
                except EXPECTED:
                    pass
                except HelixError as error:
                    self._faults.append(f"{session.session_id}: {type(error).__name__}: {error}")
                    return
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            await reading
        finally:
            reading.cancel()

    async def _go_on(self, session: Session) -> None:
        state = await self._stores.state.load_state(session.session_id)
        status = None if state is None else state.status
        if state is None and session.acknowledged:
            self._faults.append(f"{session.session_id}: was acknowledged and is gone")
            session.is_over = True
        elif status == "failed":
            self._faults.append(f"{session.session_id}: failed: {state and state.error}")
            session.is_over = True
        elif status in (None, "completed"):
            await self._next_turn(session)
        elif state is not None and status == "suspended_client_tool":
            for call_id, call in state.pending_client_tool_calls.items():
                if call.submitted_at is None:
                    await self._executor.submit_tool_result(session.session_id, call_id, approved=True)
            await self._executor.resume(agent, session.session_id)
        elif status == "interrupted":
            await self._executor.resume(agent, session.session_id)

    async def _next_turn(self, session: Session) -> None:
        run = await self._stores.state.get_current_run(session.session_id)
        if run is not None and run.status != "completed":
            return  # it is closing
        if session.acknowledged == len(session.asks):
            session.is_over = True
            return
        turn = session.acknowledged
        message = f"{'ask' if session.asks[turn] else 'go'} {turn}"
        key = f"{session.session_id} {turn}"
        try:
            await self._executor.submit(agent, message, session_id=session.session_id, idempotency_key=key)
        except IdempotencyConflict as error:
            self._faults.append(f"{session.session_id}: {error}")
        session.acknowledged += 1

    async def _read(self, session: Session) -> None:
        """Read along, and come back after every lost connection."""
        while not session.is_over:
            try:
                position = session.read[-1] if session.read else 0
                reader = await self._stores.streams.create_resumable_reader(session.session_id, from_sequence=position)
                if reader is not None:
                    async for stored in reader.stored():
                        session.read.append(stored.sequence)
            except EXPECTED:
                pass
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def live_on(client: Client, names: Callable[[], str], rng: random.Random, until: asyncio.Event) -> list[Session]:
    """Go through sessions, one after the other, until the event is set; the sessions."""
    done: list[Session] = []
    while not until.is_set():
        session = Session(names(), [rng.random() < 0.4 for _ in range(rng.choice((1, 1, 2)))])
        done.append(session)
        await client.live(session)
    return done
