"""The rate of requests and the number of streams of each account are limited, in bounded memory."""

from contextlib import ExitStack

import pytest

from trunkline.core.settings import LimitSettings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline.errors import LimitExceededError
from trunkline_bridge.callers.account_limits import AccountLimiter


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def count(limiter: AccountLimiter, account: str, times: int) -> int:
    """Count requests until one is refused; return how many were not."""
    for number in range(times):
        try:
            limiter.count_request(account)
        except LimitExceededError:
            return number
    return times


def test_a_burst_passes_and_then_the_rate() -> None:
    clock = ManualClock()
    limiter = AccountLimiter(LimitSettings(rate=2, burst=5), clock=clock)
    assert count(limiter, "a", 100) == 5
    clock.now_s += 0.5
    assert count(limiter, "a", 100) == 1
    clock.now_s += 2.0
    assert count(limiter, "a", 100) == 4
    clock.now_s += 3600
    assert count(limiter, "a", 100) == 5
    # A refused request does not count.
    clock.now_s += 0.5
    assert count(limiter, "a", 100) == 1


@pytest.mark.parametrize(("rate", "expected"), [(0.25, 1), (1, 1), (2.5, 3), (40, 40)])
def test_without_a_burst_the_requests_of_one_second_pass(rate: float, expected: int) -> None:
    assert count(AccountLimiter(LimitSettings(rate=rate), clock=ManualClock()), "a", 99) == expected


def test_the_error_says_the_limit_and_when_to_try_again() -> None:
    clock = ManualClock()
    limiter = AccountLimiter(LimitSettings(rate=0.1), clock=clock)
    limiter.count_request("acme")
    clock.now_s += 3.5
    with pytest.raises(LimitExceededError) as refused:
        limiter.count_request("acme")
    assert refused.value.retry_after_s == "7"
    assert str(refused.value) == (
        "account 'acme' may send one request in 10 seconds, and 1 at once; try again in 7 s"
    )
    clock.now_s += 7
    limiter.count_request("acme")


def test_accounts_do_not_share_a_rate_and_may_have_their_own() -> None:
    limits = LimitSettings(
        rate=1,
        account={
            "big": AccountLimitSettings(rate=3),
            "burst": AccountLimitSettings(burst=7),
            "free": AccountLimitSettings(defaults=False),
        },
    )
    limiter = AccountLimiter(limits, clock=ManualClock())
    accepted = {name: count(limiter, name, 50) for name in ("a", "b", "big", "burst", "free")}
    assert accepted == {"a": 1, "b": 1, "big": 3, "burst": 7, "free": 50}


def test_memory_is_bounded_and_the_most_silent_account_is_forgotten() -> None:
    clock = ManualClock()
    limiter = AccountLimiter(LimitSettings(rate=0.001), clock=clock, max_accounts=3)
    for account in ("a", "b", "c"):
        assert count(limiter, account, 2) == 1
    # A refused request counts as a sign of life.
    assert count(limiter, "a", 1) == 0
    assert count(limiter, "d", 2) == 1
    assert count(limiter, "a", 1) == 0
    assert count(limiter, "b", 1) == 1


def test_open_streams_are_limited_per_account() -> None:
    limiter = AccountLimiter(LimitSettings(streams=2))
    with ExitStack() as stack:
        for account in ("a", "a", "b"):
            stack.enter_context(limiter.count_stream(account))
        with pytest.raises(LimitExceededError, match="account 'a' has 2 open streams"):
            stack.enter_context(limiter.count_stream("a"))
    with limiter.count_stream("a"), limiter.count_stream("a"):
        assert not limiter.limits_requests


def test_without_limits_requests_are_not_counted() -> None:
    limiter = AccountLimiter(LimitSettings(account={"a": AccountLimitSettings(tasks=1)}))
    assert not limiter.limits_requests
