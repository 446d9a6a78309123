"""Budgets of tokens and cost per account, key and model, in days and months of UTC."""

import asyncio
import itertools
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.agents.inline_agents import OpenHost, define, message
from harness.logs import find_logged
from trunkline.core.settings import Budget, LimitSettings, TreeSettings
from trunkline.core.settings.limits import AccountLimitSettings
from trunkline.errors import JournalUnavailableError, LimitExceededError
from trunkline.tasks.budgets import Budgets, ModelUsage, end_of_period
from trunkline.tasks.context import TaskContext
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.task_tree import TaskTree
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.tasks.usage_store import (
    SqliteUsageStore,
    Subject,
    Usage,
    UsageRecord,
    list_usage,
    usage_path,
)
from trunkline.v1 import message_service_pb2, snapshot_pb2

EVENING = datetime(2026, 1, 31, 23, 0, 0, 500_000, tzinfo=UTC)
NEXT_DAY = datetime(2026, 2, 1, 0, 0, 0, tzinfo=UTC)
MODEL = "openai:gpt-5"


class ManualClock:
    def __init__(self) -> None:
        self.now = EVENING

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


OpenBudgets = Callable[[LimitSettings], Budgets]


@contextmanager
def open_budgets(
    folder: Path, limits: LimitSettings, clock: Callable[[], datetime]
) -> Iterator[Budgets]:
    with closing(Budgets(SqliteUsageStore(folder), limits, clock=clock)) as budgets:
        yield budgets


@pytest.fixture
def opening(tmp_path: Path, clock: ManualClock) -> Iterator[OpenBudgets]:
    with ExitStack() as stack:
        yield lambda limits: stack.enter_context(open_budgets(tmp_path, limits, clock))


async def is_refused(
    budgets: Budgets, account: str = "acme", caller: str = "ann", model: str = MODEL
) -> bool:
    try:
        await budgets.check(account, caller, model)
    except LimitExceededError:
        return True
    return False


def use(budgets: Budgets, tokens: int, account: str = "acme", caller: str = "ann") -> None:
    budgets.record(account, caller, MODEL, ModelUsage(tokens - 1, 1))


async def test_an_account_is_refused_until_the_day_ends(
    opening: OpenBudgets, clock: ManualClock
) -> None:
    budgets = opening(LimitSettings(day_tokens=100))
    use(budgets, 99)
    assert not await is_refused(budgets)
    use(budgets, 1, caller="another")
    with pytest.raises(LimitExceededError) as refused:
        await budgets.check("acme", "ann")
    assert str(refused.value) == (
        "account 'acme' has used its budget of 100 tokens a day; the next one begins at "
        "2026-02-01T00:00:00Z; try again in 3600 s"
    )
    assert not await is_refused(budgets, account="other")
    clock.now = NEXT_DAY
    assert not await is_refused(budgets)


async def test_of_two_exhausted_budgets_the_later_end_counts(
    opening: OpenBudgets, clock: ManualClock
) -> None:
    clock.now = datetime(2026, 2, 10, 12, tzinfo=UTC)
    budgets = opening(LimitSettings(day_tokens=5, month_tokens=10))
    use(budgets, 10)
    text = "10 tokens a month; the next one begins at 2026-03-01T00:00:00Z"
    with pytest.raises(LimitExceededError, match=text) as error:
        await budgets.check("acme", "ann")
    assert error.value.retry_after_s == str((18 * 24 + 12) * 3600)
    clock.now = datetime(2026, 2, 11, tzinfo=UTC)
    assert await is_refused(budgets)
    clock.now = datetime(2026, 3, 1, tzinfo=UTC)
    assert not await is_refused(budgets)


@pytest.mark.parametrize(
    ("now", "day", "month"),
    [
        (EVENING, NEXT_DAY, NEXT_DAY),
        (datetime(2026, 12, 31, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), None),
        (datetime(2028, 2, 1, 7, tzinfo=UTC), None, datetime(2028, 3, 1, tzinfo=UTC)),
    ],
)
def test_periods_end_at_midnight(
    now: datetime, day: datetime | None, month: datetime | None
) -> None:
    assert day is None or end_of_period(now, is_day=True) == day
    assert month is None or end_of_period(now, is_day=False) == month


async def test_a_key_and_a_model_have_budgets_of_their_own(opening: OpenBudgets) -> None:
    ann = AccountLimitSettings(key={"ann": Budget(day_tokens=10)})
    limits = LimitSettings(account={"acme": ann}, model={MODEL: Budget(month_tokens=25)})
    budgets = opening(limits)
    use(budgets, 10)
    with pytest.raises(LimitExceededError, match="key 'ann' of account 'acme' has used its budget"):
        await budgets.check("acme", "ann")
    assert not await is_refused(budgets, caller="bob")
    # A key of the same name in another account is another key.
    assert not await is_refused(budgets, account="other")
    use(budgets, 15, account="other")
    with pytest.raises(LimitExceededError, match=f"model '{MODEL}' has used its budget"):
        await budgets.check("third", "carl", MODEL)
    assert not await is_refused(budgets, account="third", model="another")
    assert not await is_refused(budgets, account="third", model="")


async def test_names_with_slashes_do_not_meet(opening: OpenBudgets) -> None:
    limits = LimitSettings(
        account={
            "a/b": AccountLimitSettings(key={"c": Budget(day_tokens=1)}),
            "a": AccountLimitSettings(key={"b/c": Budget(day_tokens=1)}),
        }
    )
    budgets = opening(limits)
    use(budgets, 5, account="a/b", caller="c")
    assert await is_refused(budgets, account="a/b", caller="c")
    assert not await is_refused(budgets, account="a", caller="b/c")


async def test_cost_is_counted_by_prices_of_a_million_tokens(opening: OpenBudgets) -> None:
    budgets = opening(LimitSettings(day_cost=0.03))
    usage = ModelUsage(1000, 500, input_price=1.25, output_price=10.0)
    assert usage.nano_cost == 6_250_000
    for _ in range(4):
        budgets.record("acme", "ann", MODEL, usage)
    assert not await is_refused(budgets)
    budgets.record("acme", "ann", MODEL, usage)
    with pytest.raises(LimitExceededError, match=r"has used its budget of 0\.03 US dollars a day"):
        await budgets.check("acme", "ann")


async def test_a_model_without_a_price_is_reported_once(
    opening: OpenBudgets, caplog: pytest.LogCaptureFixture
) -> None:
    budgets = opening(LimitSettings(day_cost=1))
    use(budgets, 10)
    use(budgets, 10)
    assert [record.message for record in find_logged(caplog)] == ["budget.no_price"]


async def test_usage_survives_a_restart_and_is_shared_by_processes(
    tmp_path: Path, clock: ManualClock
) -> None:
    limits = LimitSettings(day_tokens=100)
    with open_budgets(tmp_path, limits, clock) as first:
        use(first, 60)
    with (
        open_budgets(tmp_path, limits, clock) as one_host,
        open_budgets(tmp_path, limits, clock) as other_host,
    ):
        assert not await is_refused(other_host)
        use(one_host, 40)
        assert await is_refused(one_host)
        assert await is_refused(other_host)
    path = usage_path(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    rows = set(list_usage(tmp_path, clock.now))
    used = Usage(98, 2, 0)
    assert rows == {
        (period, subject, used)
        for period in ("2026-01-31", "2026-01")
        for subject in (Subject("acme"), Subject("acme", "ann"), Subject(model=MODEL))
    }


async def test_old_usage_is_deleted(tmp_path: Path) -> None:
    with closing(SqliteUsageStore(tmp_path)) as store:
        for days in range(0, 500, 10):
            store.add(
                [UsageRecord([Subject("acme")], Usage(1, 1, 1), EVENING + timedelta(days=days))]
            )
        last = EVENING + timedelta(days=490)
        rows = sqlite3.connect(usage_path(tmp_path)).execute("SELECT period FROM usage").fetchall()
    periods = sorted(period for (period,) in rows)
    assert [period for period in periods if len(period) == 10] == [
        f"{last - timedelta(days=days):%Y-%m-%d}" for days in (60, 50, 40, 30, 20, 10, 0)
    ]
    assert min(periods) == "2026-05"


async def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    SqliteUsageStore(tmp_path).close()
    usage_path(tmp_path).chmod(0o666)
    with pytest.raises(JournalUnavailableError, match="other users may write to it"):
        SqliteUsageStore(tmp_path)


async def test_usage_that_can_not_be_written_is_logged_and_checks_fail(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteUsageStore(tmp_path)
    budgets = Budgets(store, LimitSettings(day_tokens=5), clock=clock)
    store.close()
    use(budgets, 1)
    with pytest.raises(JournalUnavailableError):
        await budgets.check("acme", "ann")
    budgets.close()
    assert "budget.not_recorded" in [record.message for record in caplog.records]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_running_turn_waits_for_the_usage(
    opening: OpenBudgets, monkeypatch: pytest.MonkeyPatch, *, in_thread: bool
) -> None:
    budgets = opening(LimitSettings(day_tokens=5))
    use(budgets, 5)
    read = SqliteUsageStore.read
    calls = itertools.count()

    def fail_twice(store: SqliteUsageStore, keys: Sequence[tuple[str, Subject]]) -> list[Usage]:
        if next(calls) < 2:
            raise JournalUnavailableError("usage", "the disk is full")
        return read(store, keys)

    monkeypatch.setattr(SqliteUsageStore, "read", fail_twice)
    task = snapshot_pb2.TaskSnapshot(agent="tested")
    meter = UsageMeter(TaskTree(task, task, TreeSettings()), "acme", "ann", budgets)
    check = asyncio.to_thread(meter.check_blocking, MODEL) if in_thread else meter.check(MODEL)
    with pytest.raises(LimitExceededError):
        await check
    assert next(calls) == 3


async def test_no_turn_begins_without_a_budget(open_host: OpenHost, opening: OpenBudgets) -> None:
    async def ask(task: TaskContext) -> None:
        if task.turn == 1:
            await task.require_input("more?")

    budgets = opening(LimitSettings(day_tokens=5))
    host = await open_host(define(ask), budgets=budgets)
    submission = message_service_pb2.Submission(account="acme", caller="ann")
    first = await host.submit("tested", message(), submission)
    assert isinstance(first, SubmitResult)
    await host.wait_turn(first.task_id)
    use(budgets, 5)
    with pytest.raises(LimitExceededError):
        await host.submit("tested", message(), submission)
    with pytest.raises(LimitExceededError):
        await host.submit("tested", message(task_id=first.task_id), submission)
    # The same submission again is the task that exists.
    repeated = message_service_pb2.Submission(account="acme", task_id=first.task_id)
    again = await host.submit("tested", message(), repeated)
    assert isinstance(again, SubmitResult)
    assert (again.task_id, again.is_new) == (first.task_id, False)
    other = message_service_pb2.Submission(account="other")
    assert isinstance(await host.submit("tested", message(), other), SubmitResult)
