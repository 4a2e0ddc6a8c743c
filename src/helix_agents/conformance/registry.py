"""The list of checks. A check is an async function of a harness, tests one rule and is named after its guarantee.

Nothing here knows a backend or a check. The packages of checks fill the list; `run.py` and `pytest.py` read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Kind = Literal["example", "tasks", "processes", "random", "faults"]
H = TypeVar("H")


class NotApplicable(Exception):
    """The check does not apply to this backend, e.g. there is no second process. Not a failure."""


@dataclass(frozen=True)
class Check(Generic[H]):
    """One rule and how to test it."""

    guarantee: str
    title: str
    kind: Kind
    run: Callable[[H], Awaitable[None]]

    @property
    def name(self) -> str:
        """Return a unique and stable name: guarantee and function, as in `S2.commit_is_visible_as_a_whole`."""
        return f"{self.guarantee}.{self.run.__name__}"


class Registry(Generic[H]):
    """All checks of one contract, in the order in which they were written."""

    def __init__(self) -> None:
        self._checks: dict[str, Check[H]] = {}

    def check(
        self, guarantee: str, title: str, *, kind: Kind = "example"
    ) -> Callable[[Callable[[H], Awaitable[None]]], Callable[[H], Awaitable[None]]]:
        """Register the decorated function as a check."""

        def register(run: Callable[[H], Awaitable[None]]) -> Callable[[H], Awaitable[None]]:
            made = Check(guarantee, title, kind, run)
            if made.name in self._checks:
                raise ValueError(f"Two checks are called {made.name}: rename one.")
            self._checks[made.name] = made
            return run

        return register

    def select(self, only: Iterable[str] = ()) -> list[Check[H]]:
        """Return all checks, or those whose guarantee, kind or name is in `only`."""
        wanted = {word.strip() for word in only if word.strip()}
        if not wanted:
            return list(self._checks.values())
        unknown = wanted - self.words()
        if unknown:
            raise ValueError(f"No check has the guarantee, kind or name {', '.join(sorted(unknown))}.")
        return [found for found in self._checks.values() if wanted & {found.guarantee, found.kind, found.name}]

    def words(self) -> set[str]:
        """Return every word that `select` accepts."""
        return {word for found in self._checks.values() for word in (found.guarantee, found.kind, found.name)}
