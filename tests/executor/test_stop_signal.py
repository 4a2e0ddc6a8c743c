"""StopSignal: an interrupt, perhaps an abort after it, for a run and its sub-agents."""

from __future__ import annotations

from helix_agents.executor.run.stop_signal import StopSignal


def test_an_abort_may_follow_an_interrupt_and_nothing_follows_an_abort() -> None:
    signal, seen = StopSignal(), list[bool]()
    signal.listen(lambda: seen.append(signal.aborted))
    signal.request("one")
    signal.request("two")
    signal.request("three", abort=True)
    signal.request("four", abort=True)
    assert (seen, signal.reason) == ([False, True], "three")


def test_children_stop_with_their_parent_even_if_they_come_later() -> None:
    signal = StopSignal()
    before = signal.child()
    signal.request("stop", abort=True)
    after = signal.child()
    for child in (before, after):
        assert (child.requested, child.aborted, child.reason) == (True, True, "stop")


def test_while_held_requests_are_ignored() -> None:
    signal = StopSignal()
    signal.request("early")
    assert signal.hold()
    signal.request("ignored")
    assert not signal.requested
    signal.release()
    signal.request("late")
    assert signal.reason == "late"


def test_a_listener_that_unsubscribes_is_not_called() -> None:
    signal, seen = StopSignal(), list[int]()
    unsubscribe = signal.listen(lambda: seen.append(1))
    unsubscribe()
    signal.request("stop")
    assert seen == []
