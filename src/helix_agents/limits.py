"""UsageLimits: how much a run or a session may spend. Plain data; the executor counts and stops a run that exceeds
it."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from .errors import InvalidArgument


class Price(msgspec.Struct, frozen=True):
    """What a model costs, in your currency, for a million tokens.

    `cached` and `cache_written` are the prices of prompt tokens read from and written to a cache; by default the same
    as for other prompt tokens.
    """

    prompt: float
    completion: float
    cached: float | None = None
    cache_written: float | None = None

    def of(self, prompt: int, completion: int, cached: int = 0, cache_written: int = 0) -> float:
        """Return the cost of so many tokens; `cached` and `cache_written` are parts of `prompt`."""
        read = self.prompt if self.cached is None else self.cached
        written = self.prompt if self.cache_written is None else self.cache_written
        plain = (prompt - cached - cache_written) * self.prompt
        return (plain + cached * read + cache_written * written + completion * self.completion) / 1_000_000


class UsageLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be spent, by one run (a turn, however often it is resumed) or by the whole session.

    `tokens` and `cost` are counted by the usage store, `cost` by `prices` (model name -> `Price`).
    """

    steps: int | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    cost: float | None = None
    per: Literal["run", "session"] = "run"
    prices: dict[str, Price] = {}

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "tool_calls"):
            _ensure_limit(name, getattr(self, name), int)
        _ensure_limit("cost", self.cost, (int, float))
        if self.per not in ("run", "session"):
            raise InvalidArgument(f"Invalid per={self.per!r}: expected 'run' or 'session'.")
        if self.cost is not None and not self.prices:
            raise InvalidArgument("A limit of cost needs prices={'model-name': Price(prompt=..., completion=...)}.")

    @property
    def needs_usage(self) -> bool:
        """Return whether these limits need a usage store."""
        return self.tokens is not None or self.cost is not None


def _ensure_limit(name: str, value: Any, kind: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < math.inf:
        raise InvalidArgument(f"Invalid limit {name}={value!r}: expected a positive number, or None for no limit.")
