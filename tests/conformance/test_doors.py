"""The kit's command line: report, exit code, selection, declared differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from helix_agents.backends.inmemory.usage_store import InMemoryUsageStore
from helix_agents.conformance.contracts import DOORS, checks_for
from helix_agents.conformance.options import Options
from helix_agents.conformance.registry import Registry
from helix_agents.conformance.run import main, run_checks
from helix_agents.conformance.tools.child import resolve
from helix_agents.stores.usage.contract import UsageStore
from helix_agents.streams.contract import StreamManager
from tests.conformance.broken_stores import BrokenHarness, SavingClearsTheFlag
from tests.conformance.harnesses import MemoryHarness


class ForgetfulHarness(BrokenHarness):
    """A store with one known fault."""

    def __init__(self) -> None:
        super().__init__(SavingClearsTheFlag)


class DeclaringHarness(ForgetfulHarness):
    """The same store, with the fault declared."""

    declared: ClassVar[frozenset[str]] = frozenset({"S7.saving_leaves_the_flag"})


class OverDeclaringHarness(MemoryHarness):
    """Declares a difference that it does not have."""

    declared: ClassVar[frozenset[str]] = frozenset({"S7.flag_needs_no_reason"})


def test_sound_store_exits_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([f"{__name__}:MemoryHarness", "--only", "S6,S7", "--seed", "5"])

    out = capsys.readouterr().out
    assert code == 0
    assert "seed 5" in out
    assert "S7.flag_survives: a flag survives a restart" in out


def test_broken_store_exits_with_one_and_names_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([f"{__name__}:ForgetfulHarness", "--only", "S7"])

    out = capsys.readouterr().out
    assert code == 1
    assert "failed" in out
    assert "\nS7.saving_leaves_the_flag: saving and committing neither set nor clear a flag\n" in out


def test_unknown_selection_exits_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([f"{__name__}:MemoryHarness", "--only", "S99"])

    assert code == 2
    assert "S99" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["no.such.module:X", "tests.conformance.harnesses:Nothing", "just_a_word"])
def test_unknown_harness_exits_with_two(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    assert name in capsys.readouterr().err


async def test_declared_difference_is_reported_not_failed() -> None:
    results = await run_checks(DeclaringHarness, only=["S7"])

    assert {result.outcome for result in results} == {"passed", "declared", "n/a"}


async def test_declared_difference_that_is_none_fails() -> None:
    results = await run_checks(OverDeclaringHarness, only=["S7.flag_needs_no_reason"])

    assert [result.outcome for result in results] == ["failed"]


def test_every_guarantee_has_a_check() -> None:
    covered = {check.guarantee for check in checks_for(MemoryHarness)}

    assert {f"S{number}" for number in range(1, 16)} <= covered


def test_a_harness_is_judged_by_every_contract_it_has_a_door_for() -> None:
    class WithStreams(MemoryHarness):
        async def open_streams(self, **options: Any) -> StreamManager:
            raise AssertionError("not called here")

    guarantees = {check.guarantee for check in checks_for(WithStreams)}

    assert {"S1", "T1"} <= guarantees
    assert "T1" not in {check.guarantee for check in checks_for(MemoryHarness)}


def test_what_has_no_door_is_no_harness() -> None:
    with pytest.raises(ValueError, match="not a harness"):
        checks_for(int)


def test_two_checks_of_one_name_are_refused() -> None:
    registry: Registry[object] = Registry()

    async def twice(harness: object) -> None:
        """Nothing to check."""

    registry.check("S1", "once")(twice)
    with pytest.raises(ValueError, match=r"S1\.twice"):
        registry.check("S1", "again")(twice)


def test_name_without_a_colon_is_refused() -> None:
    with pytest.raises(ValueError, match="module:name"):
        resolve("just.a.module")


def test_the_index_of_guarantees_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")

    everything = [check for _, registry in DOORS for check in registry.select()]
    missing = [check.name for check in everything if f"`{check.run.__name__}`" not in page]

    assert missing == []


class BareUsageHarness:
    """Written exactly to the protocol of usage harnesses."""

    def __init__(self) -> None:
        self.options = Options()
        self._store = InMemoryUsageStore()

    async def open_usage(self) -> UsageStore:
        return self._store


async def test_a_harness_without_dispose_is_a_harness() -> None:
    results = await run_checks(BareUsageHarness, only=["U1"])
    assert {result.outcome for result in results} == {"passed"}
