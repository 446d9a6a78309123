"""Backoff of failed takeovers: it grows while a journal stays orphaned, and resets after that."""

from harness.journal.manual_clock import ManualClock
from trunkline.processes.takeover import TakeoverBackoff


def test_the_backoff_of_a_journal_grows_up_to_a_minute() -> None:
    clock = ManualClock()
    backoff = TakeoverBackoff(clock)
    pauses: list[float] = []
    for count in range(1, 14):
        assert not backoff.is_waiting("a")
        assert backoff.record_failure("a") == count
        started_s = clock.now
        while backoff.is_waiting("a"):
            clock.now += 0.01
        pauses.append(clock.now - started_s)
        backoff.retain({"a"})
    assert 0.05 <= pauses[0] <= 0.12
    assert 25 <= pauses[-1] <= 60.1
    assert not backoff.is_waiting("b")


def test_the_backoff_resets_once_another_host_owns_the_journal() -> None:
    clock = ManualClock()
    backoff = TakeoverBackoff(clock)
    for _ in range(20):
        assert backoff.record_failure("a") == 1
        # The journal has an owner at the next search, and none at the one after that.
        backoff.retain(set())
        assert not backoff.is_waiting("a")
