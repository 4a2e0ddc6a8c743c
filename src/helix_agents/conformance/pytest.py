"""Integration with pytest: one line in a test file runs the whole kit on your store.

test_my_store = conformance_tests(MyHarness)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from .contracts import checks_for
from .registry import Check
from .run import run_check


def conformance_tests(harness: type[Any], *, only: Iterable[str] = ()) -> Callable[[Check[Any]], None]:
    """Return a test with one parameter set per check. It needs no plugin and creates its own event loop.

    `harness` is a class that can be called without arguments; its methods decide which contracts are checked.
    """

    def test_conformance(check: Check[Any]) -> None:
        result = asyncio.run(run_check(check, harness))
        if result.outcome == "failed":
            pytest.fail(f"{check.title}: {result.detail}", pytrace=False)
        if result.outcome == "n/a":
            pytest.skip(result.detail)

    cases = [pytest.param(check, id=check.name) for check in checks_for(harness, only)]
    test: Callable[[Check[Any]], None] = pytest.mark.parametrize("check", cases)(test_conformance)
    return test
