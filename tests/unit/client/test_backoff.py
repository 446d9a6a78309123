"""Pauses grow up to a limit, and retries end after a while."""

import asyncio
from collections.abc import Iterator

import pytest

from trunkline.client.backoff import Backoff, RetryWindow
from trunkline.errors import PeerUnavailableError


def pauses(backoff: Backoff) -> Iterator[float]:
    while True:
        yield backoff.next_s()


def test_pauses_double_up_to_the_limit_each_cut_by_up_to_half() -> None:
    backoff = Backoff(first_s=0.1, limit_s=0.5)
    for whole, pause in zip([0.1, 0.2, 0.4, 0.5, 0.5], pauses(backoff), strict=False):
        assert whole / 2 <= pause <= whole
    backoff.reset()
    assert backoff.next_s() <= 0.1


async def test_a_pause_lasts_as_long_as_it_says() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await Backoff(first_s=0.02).pause()
    assert loop.time() - began >= 0.009


def test_a_window_passes_the_error_on_when_it_is_over() -> None:
    error = PeerUnavailableError("the peer", "it is away")
    with pytest.raises(PeerUnavailableError, match="away"):
        RetryWindow(0.0).next_pause_s(error)


def test_no_pause_is_longer_than_what_is_left_of_the_window() -> None:
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
