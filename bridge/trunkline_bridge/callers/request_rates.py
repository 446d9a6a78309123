"""Limits the rate of requests of each account at a bridge."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from trunkline.core.settings import AccountLimits, LimitSettings
from trunkline.errors import LimitExceededError

# The rates of so many accounts are remembered. Beyond it, the account that has been silent for the
# longest time starts anew.
_MAX_ACCOUNTS: Final = 10_000


class RequestRates:
    """The rates of accounts at this bridge. Each bridge of a mesh counts on its own.

    Callers without credentials share one account, and so its rate.
    """

    def __init__(
        self,
        limits: LimitSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_accounts: int = _MAX_ACCOUNTS,
    ) -> None:
        """`clock` returns seconds and never goes back."""
        accounts: tuple[AccountLimits, ...] = (limits, *limits.account.values())
        self.limits_requests: bool = any(account.rate is not None for account in accounts)
        """True if an account has a limit of requests, so that they must be counted."""
        self._limits = limits
        self._clock = clock
        self._max_accounts = max_accounts
        # The time at which an account has used nothing of its burst, by account. This is the
        # theoretical arrival time of the generic cell rate algorithm. The account that was refused
        # or admitted last is the last.
        self._idle_at: OrderedDict[str, float] = OrderedDict()

    def count_request(self, account: str) -> None:
        """Count a request.

        Raises:
            LimitExceededError: the account sends too many.
        """
        limits = self._limits.of_account(account)
        rate = limits.rate
        if rate is None:
            return
        burst = limits.burst or math.ceil(rate)
        now_s = self._clock()
        idle_at_s = max(self._idle_at.get(account, now_s), now_s)
        self._idle_at[account] = idle_at_s
        self._idle_at.move_to_end(account)
        if len(self._idle_at) > self._max_accounts:
            self._idle_at.popitem(last=False)
        wait_s = idle_at_s - now_s - (burst - 1) / rate
        # Tolerates the rounding of times.
        if wait_s > 1e-6:
            problem = f"account {account!r} may send {_describe_rate(rate)}, and {burst} at once"
            raise LimitExceededError(problem, str(math.ceil(wait_s)))
        self._idle_at[account] = idle_at_s + 1 / rate


def _describe_rate(rate: float) -> str:
    """Return a rate as words, with the number of requests at least 1."""
    if rate >= 1:
        return f"{rate:g} requests a second"
    return f"one request in {1 / rate:g} seconds"
