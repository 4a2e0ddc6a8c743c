"""Which calls are retried when a store is unavailable, and which must not be."""

from __future__ import annotations

from typing import Any

import pytest

from helix_agents.backends.inmemory.state_store import InMemoryStateStore
from helix_agents.errors import IllegalTransition, StoreUnavailable
from helix_agents.executor.retrying import patient_store, patiently
from helix_agents.retry import Retry


class LosesReplies(InMemoryStateStore):
    """Performs each write but loses the reply; between that and the next attempt, `meanwhile` runs."""

    def __init__(self, *, arrives: bool) -> None:
        super().__init__()
        self.arrives = arrives
        self.meanwhile: Any = None

    async def update_run_status(self, *args: Any, **changes: Any) -> Any:
        if self.meanwhile is None:
            return await super().update_run_status(*args, **changes)
        meanwhile, self.meanwhile = self.meanwhile, None
        if self.arrives:
            await super().update_run_status(*args, **changes)
        await meanwhile()
        raise StoreUnavailable("The reply was lost.")


async def nothing() -> None:
    return


async def _with_run(*, arrives: bool) -> LosesReplies:
    store = LosesReplies(arrives=arrives)
    await store.create_session("s", agent_type="a")
    await store.create_run("s", "r")
    return store


@pytest.mark.parametrize("arrives", [True, False])
async def test_the_end_of_a_run_whose_reply_is_lost_is_written_once(arrives: bool) -> None:
    store = await _with_run(arrives=arrives)
    store.meanwhile = nothing
    ended = await patient_store(store).update_run_status("r", "completed", output=1, expected_status="running")
    assert [ended.status, ended.output] == ["completed", 1]


async def test_a_lease_is_not_renewed_for_a_run_that_another_has_ended_while_the_store_was_away() -> None:
    store = await _with_run(arrives=False)

    async def taken_over() -> None:
        await store.update_run_status("r", "suspended_client_tool")

    store.meanwhile = taken_over
    with pytest.raises(IllegalTransition):
        await patient_store(store).update_run_status("r", "running", lease_until=5, expected_status="running")
    run = await store.get_current_run("s")
    assert run is not None
    assert run.status == "suspended_client_tool"


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_call_that_took_longer_than_the_patience_is_tried_once_more(failures: int) -> None:
    """Its process may have been frozen in between, and the store never unavailable."""
    tries = 0

    async def call() -> int:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise StoreUnavailable("No reply came in time.")
        return tries

    if failures == 1:
        assert await patiently(call, retry=Retry(within_seconds=0)) == 2
    else:
        with pytest.raises(StoreUnavailable):
            await patiently(call, retry=Retry(within_seconds=0))
        assert tries == 2
