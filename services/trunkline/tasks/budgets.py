"""Budgets of tokens and cost, in days and months of UTC.

A turn is refused before it begins, and a model is not called, if the account, the caller or the
model has used up a budget. Usage is added after each reply of a model. So calls that run at once
may together exceed a budget by their own usage, and no text is cut off.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from trunkline.core.settings import Budget, LimitSettings
from trunkline.errors import JournalUnavailableError, LimitExceededError
from trunkline.tasks.usage_store import NANO, Subject, Usage, UsageStore, periods

logger = logging.getLogger(__name__)

_MILLION: Final = 1_000_000


class ModelUsage(NamedTuple):
    """The tokens of one reply of a model, and the prices of a million tokens, if they are set."""

    input_tokens: int
    output_tokens: int
    input_price: float | None = None
    output_price: float | None = None

    @property
    def tokens(self) -> int:
        """The tokens that the model read and wrote."""
        return self.input_tokens + self.output_tokens

    @property
    def nano_cost(self) -> int:
        """The cost in 10^-9 US dollars."""
        prices = (self.input_price or 0.0, self.output_price or 0.0)
        cost = self.input_tokens * prices[0] + self.output_tokens * prices[1]
        return round(cost * (NANO // _MILLION))


class _Limit(NamedTuple):
    """A limit in one period."""

    subject: Subject
    period: str
    is_day: bool
    tokens: int | None
    cost: float | None

    def describe_excess(self, usage: Usage) -> str:
        """Return the budget that is used up, or "" if the usage is within it."""
        name = "day" if self.is_day else "month"
        if self.tokens is not None and usage.tokens >= self.tokens:
            return f"{self.subject} has used its budget of {self.tokens} tokens a {name}"
        if self.cost is not None and usage.nano_cost >= round(self.cost * NANO):
            return f"{self.subject} has used its budget of {self.cost:g} US dollars a {name}"
        return ""


class Budgets:
    """Checks and records the usage of all turns of a host."""

    def __init__(
        self,
        store: UsageStore,
        limits: LimitSettings,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`clock` returns the time in UTC. `close` closes the store."""
        self._store = store
        self._limits = limits
        self._clock = clock
        # One thread, so that a check sees what was recorded before it. Only it uses the store.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trunkline-usage")
        self._unpriced: set[str] = set()

    def close(self) -> None:
        """Wait until everything is recorded, and close the store. It blocks.

        Nothing can be checked afterwards.
        """
        self._executor.submit(self._store.close)
        self._executor.shutdown()

    async def check(self, account: str, caller: str, model: str = "") -> None:
        """Check the budgets of an account and a caller, and of a model if there is one.

        Raises:
            LimitExceededError: one is used up.
            JournalUnavailableError: the usage can't be read.
        """
        now = self._clock()
        if limits := self._list_limits(account, caller, model, now):
            _check_limits(limits, await asyncio.wrap_future(self._read(limits)), now)

    def check_blocking(self, account: str, caller: str, model: str) -> None:
        """Check the budgets as `check` does, from a thread."""
        now = self._clock()
        if limits := self._list_limits(account, caller, model, now):
            _check_limits(limits, self._read(limits).result(), now)

    def _read(self, limits: Sequence[_Limit]) -> "Future[Sequence[Usage]]":
        keys = [(limit.period, limit.subject) for limit in limits]
        return self._executor.submit(self._store.read, keys)

    def record(self, account: str, caller: str, model: str, usage: ModelUsage) -> None:
        """Add the usage of a reply, in a thread. A failure is logged."""
        if usage.input_price is None and usage.output_price is None:
            self._warn_without_price(model)
        subjects = [Subject(account), Subject(account, caller), Subject(model=model)]
        used = Usage(usage.input_tokens, usage.output_tokens, usage.nano_cost)
        self._executor.submit(self._store.add, subjects, used, self._clock()).add_done_callback(
            _log_failure
        )

    def _list_limits(self, account: str, caller: str, model: str, now: datetime) -> list[_Limit]:
        day, month = periods(now)
        limits: list[_Limit] = []
        for subject in (Subject(account), Subject(account, caller), Subject(model=model)):
            if budget := find_budget(self._limits, subject):
                limits += (
                    _Limit(subject, day, True, budget.day_tokens, budget.day_cost),
                    _Limit(subject, month, False, budget.month_tokens, budget.month_cost),
                )
        return [limit for limit in limits if (limit.tokens, limit.cost) != (None, None)]

    def _warn_without_price(self, model: str) -> None:
        """Warn once that a model without a price costs nothing, if there are budgets of cost."""
        if model not in self._unpriced and self._limits.has_cost_budgets:
            self._unpriced.add(model)
            problem = "budgets of cost do not count it; set input_price and output_price"
            logger.warning("budget.no_price", extra={"model": model, "problem": problem})


def _check_limits(limits: Sequence[_Limit], usages: Sequence[Usage], now: datetime) -> None:
    excesses = [
        (end_of_period(now, is_day=limit.is_day), problem)
        for limit, usage in zip(limits, usages, strict=True)
        if (problem := limit.describe_excess(usage))
    ]
    if excesses:
        # The period that ends last counts.
        end, problem = max(excesses)
        wait_s = math.ceil((end - now).total_seconds())
        text = f"{problem}; the next one begins at {end:%Y-%m-%dT%H:%M:%SZ}"
        raise LimitExceededError(text, str(max(1, wait_s)))


def find_budget(limits: LimitSettings, subject: Subject) -> Budget | None:
    """Return the budget of an account, a key or a model, if it is limited."""
    if not subject.account:
        return limits.model.get(subject.model)
    if subject.caller:
        return limits.of_key(subject.account, subject.caller)
    return limits.of_account(subject.account)


def end_of_period(now: datetime, *, is_day: bool) -> datetime:
    """Return the time at which the day or the month of a time ends."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if is_day:
        return midnight + timedelta(days=1)
    # The 1st plus 32 days is in the next month.
    return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)


def _log_failure(done: "Future[None]") -> None:
    error = done.exception()
    if isinstance(error, JournalUnavailableError):
        logger.error("budget.not_recorded", extra={"problem": error.problem})
    elif error is not None:
        logger.error("budget.not_recorded", exc_info=error)
