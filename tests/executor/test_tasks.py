"""Jobs that nothing may cancel, and jobs that end together."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from helix_agents.executor.tasks import finish_despite_cancel, gather_or_cancel


async def test_a_job_that_nothing_breaks_off_tells_how_it_ended() -> None:
    go_on, done = asyncio.Event(), []

    async def work(*, fails: bool) -> None:
        await go_on.wait()
        if fails:
            raise ValueError("broken")
        done.append("done")

    working = asyncio.create_task(finish_despite_cancel(work(fails=False)))
    for _ in range(3):
        await asyncio.sleep(0)
        working.cancel()
    await asyncio.sleep(0)
    assert not working.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert done == ["done"]
    with pytest.raises(ValueError, match="broken"):
        await finish_despite_cancel(work(fails=True))


async def test_the_first_error_ends_the_other_jobs_before_it_is_raised() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("other")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await gather_or_cancel(wait, fail)
    assert ended == ["other"]


async def test_jobs_of_a_caller_that_is_cancelled_before_it_starts_leave_no_coroutine() -> None:
    async def work() -> None:
        raise AssertionError("started")

    jobs = asyncio.ensure_future(gather_or_cancel(work, work))
    jobs.cancel()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await asyncio.gather(jobs, return_exceptions=True)
        gc.collect()
    assert jobs.cancelled()
