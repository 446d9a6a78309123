"""The rate of requests of each account is limited, in bounded memory."""

import pytest

from trunkline.core.settings import LimitSettings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline.errors import LimitExceededError
from trunkline_bridge.callers.request_rates import RequestRates


class ManualClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def count(rates: RequestRates, account: str, times: int) -> int:
    """Count requests until one is refused; return how many were not."""
    for number in range(times):
        try:
            rates.count_request(account)
        except LimitExceededError:
            return number
    return times


def test_a_burst_passes_and_then_the_rate() -> None:
    clock = ManualClock()
    rates = RequestRates(LimitSettings(rate=2, burst=5), clock=clock)
    assert count(rates, "a", 100) == 5
    clock.now_s += 0.5
    assert count(rates, "a", 100) == 1
    clock.now_s += 2.0
    assert count(rates, "a", 100) == 4
    clock.now_s += 3600
    assert count(rates, "a", 100) == 5
    # A refused request does not count.
    clock.now_s += 0.5
    assert count(rates, "a", 100) == 1


@pytest.mark.parametrize(("rate", "expected"), [(0.25, 1), (1, 1), (2.5, 3), (40, 40)])
def test_without_a_burst_the_requests_of_one_second_pass(rate: float, expected: int) -> None:
    assert count(RequestRates(LimitSettings(rate=rate), clock=ManualClock()), "a", 99) == expected


def test_the_error_says_the_limit_and_when_to_try_again() -> None:
    clock = ManualClock()
    rates = RequestRates(LimitSettings(rate=0.1), clock=clock)
    rates.count_request("acme")
    clock.now_s += 3.5
    with pytest.raises(LimitExceededError) as refused:
        rates.count_request("acme")
    assert refused.value.retry_after_s == "7"
    assert str(refused.value) == (
        "account 'acme' may send one request in 10 seconds, and 1 at once; try again in 7 s"
    )
    clock.now_s += 7
    rates.count_request("acme")


def test_accounts_do_not_share_a_rate_and_may_have_their_own() -> None:
    limits = LimitSettings(
        rate=1,
        account={
            "big": AccountLimitSettings(rate=3),
            "burst": AccountLimitSettings(burst=7),
            "free": AccountLimitSettings(defaults=False),
        },
    )
    rates = RequestRates(limits, clock=ManualClock())
    accepted = {name: count(rates, name, 50) for name in ("a", "b", "big", "burst", "free")}
    assert accepted == {"a": 1, "b": 1, "big": 3, "burst": 7, "free": 50}


def test_memory_is_bounded_and_the_most_silent_account_is_forgotten() -> None:
    clock = ManualClock()
    rates = RequestRates(LimitSettings(rate=0.001), clock=clock, max_accounts=3)
    for account in ("a", "b", "c"):
        assert count(rates, account, 2) == 1
    # A refused request counts as a sign of life.
    assert count(rates, "a", 1) == 0
    assert count(rates, "d", 2) == 1
    assert count(rates, "a", 1) == 0
    assert count(rates, "b", 1) == 1


def test_without_limits_requests_are_not_counted() -> None:
    rates = RequestRates(LimitSettings(account={"a": AccountLimitSettings(tasks=1)}))
    assert not rates.limits_requests
