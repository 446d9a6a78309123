"""Takeovers that failed: pauses grow while nobody has the journal, and end when somebody has."""

from harness.hand_clock import HandClock
from trunkline.agents.setbacks import Setbacks


def test_a_journal_is_left_alone_for_longer_and_longer_up_to_a_minute() -> None:
    clock = HandClock()
    setbacks = Setbacks(clock)
    pauses: list[float] = []
    for count in range(1, 14):
        assert not setbacks.is_pausing("a")
        assert setbacks.note("a") == count
        began_s = clock.now
        while setbacks.is_pausing("a"):
            clock.now += 0.01
        pauses.append(clock.now - began_s)
        setbacks.keep({"a"})
    assert 0.05 <= pauses[0] <= 0.12
    assert 25 <= pauses[-1] <= 60.1
    assert not setbacks.is_pausing("b")


def test_who_came_too_late_often_is_there_at_once_when_the_next_host_dies() -> None:
    clock = HandClock()
    setbacks = Setbacks(clock)
    for _ in range(20):
        assert setbacks.note("a") == 1
        # At the next look somebody has it, and at the one after that they are gone.
        setbacks.keep(set())
        assert not setbacks.is_pausing("a")
