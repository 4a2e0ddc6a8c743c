"""Run checks and report the results, from the command line or a program.

python -m helix_agents.conformance my_package.testing:MyHarness --only S2,S8 --seed 7 --steps 1000
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TextIO

from .contracts import checks_for
from .options import Options
from .registry import Check, NotApplicable
from .tools.child import resolve

Factory = Callable[[], Any]
"""Creates a harness on empty data; usually the harness class itself."""

Outcome = Literal["passed", "failed", "n/a", "declared"]


@dataclass(frozen=True)
class Result:
    """The result of one check."""

    check: Check[Any]
    outcome: Outcome
    seconds: float
    detail: str = ""
    error: BaseException | None = None


async def run_check(check: Check[Any], factory: Factory, options: Options | None = None) -> Result:
    """Run one check on its own data."""
    harness = factory()
    harness.options = options or getattr(harness, "options", None) or Options()
    declared: frozenset[str] = getattr(harness, "declared", frozenset())
    began = time.perf_counter()
    try:
        await check.run(harness)
    except NotApplicable as reason:
        return Result(check, "n/a", time.perf_counter() - began, str(reason))
    except Exception as error:
        took = time.perf_counter() - began
        if check.name in declared:
            return Result(check, "declared", took, str(error))
        seeded = f"{type(error).__name__}: {error} (seed {harness.options.seed})"
        return Result(check, "failed", took, seeded, error)
    finally:
        await _dispose(harness)
    if check.name in declared:
        return Result(check, "failed", time.perf_counter() - began, "declared as a difference, but it passes")
    return Result(check, "passed", time.perf_counter() - began)


async def run_checks(factory: Factory, *, only: Iterable[str] = (), options: Options | None = None) -> list[Result]:
    """Run all checks, or those that `only` selects by guarantee, kind or name."""
    chosen = options or Options()
    return [await run_check(check, factory, chosen) for check in await _selected(factory, only)]


async def _selected(factory: Factory, only: Iterable[str]) -> list[Check[Any]]:
    if isinstance(factory, type):
        return checks_for(factory, only)
    if not callable(factory):
        raise ValueError(f"{factory!r} is not a harness: name a class of harnesses, or a function that makes one.")
    try:
        harness = factory()
    except TypeError as error:
        raise ValueError(f"{factory!r} does not make a harness: {error}.") from error
    try:
        return checks_for(harness, only)
    finally:
        await _dispose(harness)


async def _dispose(harness: Any) -> None:
    """Let a harness remove its data."""
    dispose = getattr(harness, "dispose", None)
    if dispose is not None:
        await dispose()


def report(results: Iterable[Result], out: TextIO) -> int:
    """Print the results, failures last, and return how many checks failed."""
    counts: dict[str, int] = {}
    failed = []
    for result in results:
        counts[result.outcome] = counts.get(result.outcome, 0) + 1
        note = f"  ({result.detail})" if result.outcome in ("n/a", "declared") else ""
        out.write(f"{result.outcome:8} {result.seconds:6.2f} s  {result.check.name}: {result.check.title}{note}\n")
        if result.outcome == "failed":
            failed.append(result)
    for result in failed:
        out.write(f"\n{result.check.name}: {result.check.title}\n  {result.detail}\n")
    out.write("\n" + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) + "\n")
    return len(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helix conformance", description="Check a store against its contract.")
    parser.add_argument("harness", help="module:name of a harness class, or of a callable that makes one")
    parser.add_argument("--only", default="", help="guarantees, kinds or names of checks, separated by commas")
    parser.add_argument("--seed", type=int, help="start of all random choices; the report of a failure names it")
    parser.add_argument("--steps", type=int, help="length of a random walk")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the kit as a command; return 0 if nothing failed."""
    given = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    options = Options()
    if given.seed is not None:
        options = replace(options, seed=given.seed)
    if given.steps is not None:
        options = replace(options, steps=given.steps)
    try:
        factory: Factory = resolve(given.harness)
    except (ImportError, AttributeError, ValueError) as error:
        sys.stderr.write(f"There is no harness {given.harness!r}: {error}\n")
        return 2
    try:
        results = asyncio.run(run_checks(factory, only=given.only.split(","), options=options))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{getattr(factory, 'name', given.harness)}, seed {options.seed}\n")
    return 1 if report(results, sys.stdout) else 0
