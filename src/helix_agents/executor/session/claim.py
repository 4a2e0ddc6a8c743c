"""Taking a session: a new one or the next turn of a finished one (`turns.py`), or one whose run stopped, crashed or
waits (`takeover.py`).

A claim has four steps. It may stall after any of them for longer than a lease; then another process takes over, and
what this one does after it wakes up is refused.

1. *Look*: load the session, its latest run and the fence of its stream. What is staged for an open step is copied under
   the new run's name (an old run that wakes up writes to the old one), guarded by the version.
2. *Take*: the one write that wins the session, guarded by the version. It holds what the user said, and names the step
   that the new run is going to work on (`suspended_step_id`), so that everybody can tell whose session it is.
3. *Fence*: make the stream ready under a fence that is larger than that of every earlier claim.
4. *Record*: begin the new run's record with its lease, guarded by the version again, and close the old one.

A turn needs no step 4: its record begins in the write that takes the session, so that a crash at any point leaves a run
whose lease lapses, which `list_claimable` finds. Who loses step 2 gets `AlreadyRunning`, who loses a later one
`RunLost`. A take-over that dies before step 4 leaves the old record; the session can be claimed again once it has been
still for the length of a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import IllegalTransition, RunLost
from ...lifecycle import SESSION_TERMINAL
from ...messages import Message
from ...types import RunRecord, RunStatus, SessionState, StagedChanges
from ..services import Services

logger = logging.getLogger("helix_agents.executor")

REPLACED = "another process has taken the session over"
DIED = "Its process died; another run went on."


@dataclass(frozen=True)
class Claim:
    """A session taken, with all that its new run has to know."""

    session: SessionState
    messages: Sequence[Message]
    run: RunRecord
    fence: int
    """What the run passes with every change of its stream."""
    claimed_at: int
    staged: Sequence[StagedChanges] = ()
    rewound: bool = False
    resumed: bool = False
    announce: bool = True
    """Whether the run tells its stream that it begins; one that only goes on elsewhere does not."""
    then: Sequence[Message] = ()
    """What the user said while a step was open; it follows that step."""

    def lost(self, why: str = REPLACED) -> RunLost:
        """The error for whoever believed to have the session."""
        return RunLost(self.session.session_id, self.run.run_id, why)


async def close_record(services: Services, old: RunRecord, old_status: str) -> None:
    """Let the record of a run that died say so; whoever comes first does it, in the same words as anybody would."""
    status: RunStatus = "interrupted"
    if old_status in SESSION_TERMINAL:
        status = "completed" if old_status == "completed" else "failed"
    error = None if status == "completed" else DIED
    try:
        await services.store.update_run_status(old.run_id, status, error=error, expected_status="running")
    except IllegalTransition:
        return
    logger.warning("Session %s was recovered: its run %s had stopped without an end.", old.session_id, old.run_id)
