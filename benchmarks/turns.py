"""A session of ours and hand-written ones that make the same steps in turns, and many such runs as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from benchmarks.pairing import Paired, pair_async
from benchmarks.workload import OurSession, Step, steps

HandCommit = Callable[[Step], Awaitable[object]]


class Run(NamedTuple):
    """The commits of one session under the names of all contestants, and nanoseconds of our stagings."""

    commits: Paired
    stage_ns: list[float]


async def commits_in_turns(ours: OurSession, by_hand: Mapping[str, HandCommit], count: int, *, warmup: int = 3) -> Run:
    """Time the commits of `count` steps; ours is staged before each, as in a real run, off the clock."""
    every = steps(count)
    step: Step
    stage_ns: list[float] = []

    async def prepare() -> None:
        nonlocal step
        step = next(every)
        writes = ours.writes_of(step)
        start = perf_counter_ns()
        await ours.stage(step, writes)
        stage_ns.append(perf_counter_ns() - start)

    def making(commit: HandCommit) -> Callable[[], Awaitable[object]]:
        return lambda: commit(step)

    contestants = {name: making(commit) for name, commit in {"ours": ours.commit, **by_hand}.items()}
    return Run(await pair_async(contestants, rounds=count - warmup, warmup=warmup, before=prepare), stage_ns)


def together(runs: Sequence[Run]) -> Run:
    """Several sessions of one length as one set of samples."""
    names = runs[0].commits.samples
    samples = {name: [value for run in runs for value in run.commits.samples[name]] for name in names}
    return Run(Paired(samples), [value for run in runs for value in run.stage_ns])
