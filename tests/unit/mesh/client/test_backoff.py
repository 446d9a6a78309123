"""Backoff pauses grow up to a limit, and retries end after a window."""

from collections.abc import Iterator

import pytest

from trunkline.core.backoff import Backoff, RetryWindow
from trunkline.errors import PeerUnavailableError


def pauses(backoff: Backoff) -> Iterator[float]:
    while True:
        yield backoff.next_s()


def test_pauses_double_up_to_the_limit_with_up_to_half_as_jitter() -> None:
    backoff = Backoff(first_s=0.1, limit_s=0.5)
    for full_s, pause_s in zip([0.1, 0.2, 0.4, 0.5, 0.5], pauses(backoff), strict=False):
        assert full_s / 2 <= pause_s <= full_s
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_a_window_raises_the_error_after_its_end() -> None:
    error = PeerUnavailableError("the peer", "it is away")
    with pytest.raises(PeerUnavailableError, match="away"):
        RetryWindow(0.0).next_pause_s(error)


def test_no_pause_is_longer_than_the_rest_of_the_window() -> None:
    retries = RetryWindow(0.01)
    assert retries.next_pause_s(PeerUnavailableError("the peer", "it is away")) < 0.011
    assert retries.is_retrying


def test_a_success_starts_a_new_window() -> None:
    retries = RetryWindow(60)
    error = PeerUnavailableError("the peer", "it is away")
    for _ in range(5):
        retries.next_pause_s(error)
    retries.reset()
    assert not retries.is_retrying
    assert retries.next_pause_s(error) <= 0.1
