"""Paired timing: the things to compare take turns, step by step, in one process.

Separate runs on a shared machine resolve no better than a factor of two; neighbours in time see the same machine. Each
round runs every contestant once, in changing order, and the answer is the median over the rounds of the ratio of the
two. A contestant against itself must therefore read 1.00, and `self_check` says whether it does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from random import Random
from statistics import median
from time import perf_counter_ns

SELF_LOW, SELF_HIGH = 0.97, 1.03
SEED = 20


@dataclass(frozen=True)
class Paired:
    """Nanoseconds of every round, by contestant; the n-th samples of all belong together."""

    samples: Mapping[str, list[float]]

    def median_ns(self, name: str) -> float:
        return median(self.samples[name])

    def quantile_ns(self, name: str, fraction: float) -> float:
        ordered = sorted(self.samples[name])
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]

    def ratio(self, name: str, baseline: str) -> float:
        """How many times the baseline's time: the median of the ratios of the rounds."""
        return median(mine / base for mine, base in zip(self.samples[name], self.samples[baseline], strict=True))

    def growth(self, name: str, baseline: str) -> float:
        """The ratio in the last fifth of the rounds over that in the first: 1 if history does not matter."""
        fifth = len(self.samples[name]) // 5
        early = Paired({each: values[:fifth] for each, values in self.samples.items()})
        late = Paired({each: values[-fifth:] for each, values in self.samples.items()})
        return late.ratio(name, baseline) / early.ratio(name, baseline)


def pair(contestants: Mapping[str, Callable[[], object]], *, rounds: int, repeat: int = 1, warmup: int = 3) -> Paired:
    """Time plain callables in turns. `repeat` calls make one sample, for what is too short for the clock."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number, order in _orders(list(contestants), rounds + warmup):
        for name in order:
            call = contestants[name]
            start = perf_counter_ns()
            for _ in range(repeat):
                call()
            taken = perf_counter_ns() - start
            if number >= warmup:
                samples[name].append(taken / repeat)
    return Paired(samples)


async def pair_async(
    contestants: Mapping[str, Callable[[], Awaitable[object]]],
    *,
    rounds: int,
    repeat: int = 1,
    warmup: int = 3,
    before: Callable[[], Awaitable[object]] | None = None,
) -> Paired:
    """Like `pair`, for coroutine functions. `before` prepares a round, off the clock."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number, order in _orders(list(contestants), rounds + warmup):
        if before is not None:
            await before()
        for name in order:
            call = contestants[name]
            start = perf_counter_ns()
            for _ in range(repeat):
                await call()
            taken = perf_counter_ns() - start
            if number >= warmup:
                samples[name].append(taken / repeat)
    return Paired(samples)


def _orders(names: list[str], rounds: int) -> Iterator[tuple[int, list[str]]]:
    """The order of contestants: none always runs in the caches left by the same predecessor.

    Every order comes equally often, in a shuffled sequence. Shuffled alone, some orders would win in a short run, and
    the one who mostly follows his twin would look faster.
    """
    chance = Random(SEED)
    orders: list[tuple[str, ...]] = []
    for number in range(rounds):
        if not orders:
            orders = list(permutations(names))
            chance.shuffle(orders)
        yield number, list(orders.pop())


@dataclass
class Report:
    """Lines of results against bounds; the exit code says whether all hold."""

    failures: int = 0

    def line(self, what: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
        good = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        self.failures += not good
        bounds = [
            f"{word} {bound:g}" for word, bound in (("at least", at_least), ("at most", at_most)) if bound is not None
        ]
        print(f"{'ok  ' if good else 'FAIL'} {what:<58} {value:8.2f}  {' '.join(bounds)}", flush=True)

    def self_check(self, what: str, paired: Paired, one: str, same: str) -> None:
        """The error of the measurement itself: the same work under two names."""
        self.line(f"{what}, against itself", paired.ratio(one, same), at_least=SELF_LOW, at_most=SELF_HIGH)

    def exit_code(self) -> int:
        return 1 if self.failures else 0
