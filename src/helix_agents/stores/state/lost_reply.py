"""Find the outcome of a commit whose reply was lost, so that it happens exactly once (S12)."""

from __future__ import annotations

import asyncio

from ...errors import StoreUnavailable
from ...retry import TRANSIENT
from .commit import Applied, Commit
from .verbs import StateStoreVerbs


async def outcome_of(store: StateStoreVerbs, commit: Commit, error: StoreUnavailable) -> Applied:
    """Check by the checkpoint whether the commit happened, before retrying it."""
    row = commit.checkpoint
    if error.nothing_written or row is None:
        raise error
    for delay_seconds in TRANSIENT.delays():
        await asyncio.sleep(delay_seconds)
        try:
            found = await store._read_checkpoint(commit.session_id, row.checkpoint_id, custom_state=False)
            if found is not None:
                return Applied(found[0].version, found[0].message_count, found[0].step_count, 0)
            return (await store._apply(commit))[0]
        except StoreUnavailable as again:
            if again.nothing_written:
                raise error from again  # the backend has waited already, and the outcome of the commit is unknown
            error = again
    raise error
