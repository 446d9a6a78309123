"""Takeovers that failed: pauses grow while nobody has the journal, and end when somebody has."""

from harness.journal.manual_clock import ManualClock
from trunkline.agents.takeover import TakeoverBackoff


def test_a_journal_is_left_alone_for_longer_and_longer_up_to_a_minute() -> None:
    clock = ManualClock()
    setbacks = TakeoverBackoff(clock)
    pauses: list[float] = []
    for count in range(1, 14):
        assert not setbacks.is_waiting("a")
        assert setbacks.record_failure("a") == count
        began_s = clock.now
        while setbacks.is_waiting("a"):
            clock.now += 0.01
        pauses.append(clock.now - began_s)
        setbacks.retain({"a"})
    assert 0.05 <= pauses[0] <= 0.12
    assert 25 <= pauses[-1] <= 60.1
    assert not setbacks.is_waiting("b")


def test_who_came_too_late_often_is_there_at_once_when_the_next_host_dies() -> None:
    clock = ManualClock()
    setbacks = TakeoverBackoff(clock)
    for _ in range(20):
        assert setbacks.record_failure("a") == 1
        # At the next look somebody has it, and at the one after that they are gone.
        setbacks.retain(set())
        assert not setbacks.is_waiting("a")
