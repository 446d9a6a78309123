"""Budgets of tokens and cost, in days and months of UTC.

A turn is refused before it begins, and a model is not called, if the account, the caller or the
model has used up a budget. Usage is added after each reply of a model. So calls that run at once
may together exceed a budget by their own usage, and no text is cut off.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from trunkline.core.settings import Budget, LimitSettings
from trunkline.core.storable_texts import check_texts
from trunkline.errors import JournalUnavailableError, LimitExceededError
from trunkline.tasks.usage_store import NANO, Subject, Usage, UsageRecord, UsageStore, periods

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

    @property
    def key(self) -> tuple[str, Subject]:
        """The key of the usage in the store."""
        return self.period, self.subject

    def describe_excess(self, usage: Usage) -> str:
        """Return the budget that is used up, or "" if the usage is within it."""
        name = "day" if self.is_day else "month"
        if self.tokens is not None and usage.tokens >= self.tokens:
            return f"{self.subject} has used its budget of {self.tokens} tokens a {name}"
        if self.cost is not None and usage.nano_cost >= round(self.cost * NANO):
            return f"{self.subject} has used its budget of {self.cost:g} US dollars a {name}"
        return ""


class _Read(NamedTuple):
    """A check that waits for the usage in its limits."""

    limits: Sequence[_Limit]
    usages: "Future[Sequence[Usage]]"


class Budgets:
    """Checks and records the usage of all turns of a host.

    The store is called in one thread, for all records and checks that wait at that time. So checks
    do not queue behind each other while a database does not answer.
    """

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
        # Only its thread uses the store.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trunkline-usage")
        self._lock = threading.Lock()
        self._records: list[UsageRecord] = []
        self._reads: list[_Read] = []
        self._is_working = False
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
            InvalidArgumentError: a name can't be stored.
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
        read = _Read(limits, Future())
        with self._lock:
            self._reads.append(read)
            self._begin_work()
        return read.usages

    def record(self, account: str, caller: str, model: str, usage: ModelUsage) -> None:
        """Add the usage of a reply, in a thread. A failure is logged.

        Raises:
            InvalidArgumentError: a name can't be stored.
        """
        check_texts(account=account, caller=caller, model=model)
        if usage.input_price is None and usage.output_price is None:
            self._warn_without_price(model)
        subjects = [Subject(account), Subject(account, caller), Subject(model=model)]
        used = Usage().plus(Usage(usage.input_tokens, usage.output_tokens, usage.nano_cost))
        with self._lock:
            self._records.append(UsageRecord(subjects, used, self._clock()))
            self._begin_work()

    def _begin_work(self) -> None:
        """Let the thread work, if it does not. The caller has the lock."""
        if not self._is_working:
            self._executor.submit(self._work)
            self._is_working = True

    def _work(self) -> None:
        while True:
            with self._lock:
                records, self._records = self._records, []
                reads, self._reads = self._reads, []
                if not records and not reads:
                    self._is_working = False
                    return
            try:
                if records:
                    self._store.add(records)
                if reads:
                    self._answer(reads)
            except Exception as error:  # noqa: BLE001  whoever waits gets it
                if records:
                    _log_failure(error)
                # The checks that came meanwhile would wait as long for the same error.
                with self._lock:
                    reads += self._reads
                    self._reads = []
                for read in reads:
                    if read.usages.set_running_or_notify_cancel():
                        read.usages.set_exception(error)

    def _answer(self, reads: Sequence[_Read]) -> None:
        """Read the usage for all checks at once. A check sees what was recorded before it."""
        keys = list(dict.fromkeys(limit.key for read in reads for limit in read.limits))
        usages = dict(zip(keys, self._store.read(keys), strict=True))
        for read in reads:
            if read.usages.set_running_or_notify_cancel():
                read.usages.set_result([usages[limit.key] for limit in read.limits])

    def _list_limits(self, account: str, caller: str, model: str, now: datetime) -> list[_Limit]:
        check_texts(account=account, caller=caller, model=model)
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


def _log_failure(error: Exception) -> None:
    if isinstance(error, JournalUnavailableError):
        logger.error("budget.not_recorded", extra={"problem": error.problem})
    else:
        logger.error("budget.not_recorded", exc_info=error)
