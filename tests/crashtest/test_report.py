"""The report of a crash test: what was duplicated, lost or asked about."""

from __future__ import annotations

from helix_agents.crashtest.report import Effect, Report

PAY = Effect("pay", "c", {"n": 1})


def report(kind: str = "once") -> Report:
    made = Report(points=3, ending="completed")
    made.start({"pay": kind})
    return made


def test_a_round_like_the_calm_one_is_clean() -> None:
    made = report()
    made.add("here", "completed", [PAY], [PAY], [])
    assert made.is_clean
    assert "1 rounds, 0 kills, over 3 durable points" in str(made)


def test_an_effect_that_happened_twice_is_named_with_its_place() -> None:
    made = report()
    made.add("here", "completed", [PAY], [PAY, PAY], [])
    assert not made.is_clean
    assert "pay was doubled: here" in str(made)


def test_a_tool_that_may_repeat_may_be_doubled_but_not_lost() -> None:
    made = report("idempotent")
    made.add("here", "completed", [PAY], [PAY, PAY], [])
    assert made.is_clean
    made.add("there", "completed", [PAY], [], [])
    assert not made.is_clean
    assert "pay was lost: there" in str(made)


def test_another_ending_and_questions_are_counted() -> None:
    made = report()
    made.add("here", "failed", [PAY], [], ["pay"])
    assert made.endings == {"failed instead of completed": 1}
    assert (made.tools["pay"].unknown, made.tools["pay"].lost) == (1, [])


def test_the_same_call_with_other_arguments_is_another_effect() -> None:
    made = report()
    made.add("here", "completed", [PAY], [Effect("pay", "c", {"n": 2})], [])
    assert (made.tools["pay"].doubled, made.tools["pay"].lost) == (["here"], ["here"])
