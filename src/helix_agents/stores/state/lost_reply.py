"""Find the outcome of a commit whose reply was lost, so that it happens exactly once (S12)."""

from __future__ import annotations

import asyncio

from ...errors import StoreUnavailable
from .commit import Applied, Commit
from .verbs import StateStoreVerbs

MAX_COMMIT_ATTEMPTS = 5


async def outcome_of(store: StateStoreVerbs, commit: Commit, error: StoreUnavailable) -> Applied:
    """Check by the checkpoint whether the commit happened, before retrying it."""
    row = commit.checkpoint
    if error.nothing_written or row is None:
        raise error
    for attempt in range(1, MAX_COMMIT_ATTEMPTS):
        await asyncio.sleep(0.0025 * 4**attempt)
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
