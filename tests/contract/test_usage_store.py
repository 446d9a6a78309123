"""The conformance suite of usage: budgets hold over all hosts, and nothing is counted twice."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.a2a.sse_client import PATIENCE_S
from harness.journal.postgres_server import PostgresServer, blocking_database
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.settings import LimitSettings, Settings
from trunkline.errors import (
    Code,
    InvalidArgumentError,
    JournalUnavailableError,
    LimitExceededError,
)
from trunkline.processes.usage import open_usage_store, read_usage
from trunkline.tasks.budgets import Budgets, ModelUsage
from trunkline.tasks.postgres_usage import PostgresUsageStore
from trunkline.tasks.usage_store import Subject, Usage, UsageRecord

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY, MONTH = "2026-01-31", "2026-01"
ACME = Subject("acme")


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    with ExitStack() as stack:
        is_stored = request.param == "postgres"
        store = stack.enter_context(blocking_database()) if is_stored else ""
        yield Settings(data_dir=tmp_path, store=store)


def test_hosts_add_up(settings: Settings) -> None:
    first, second = open_usage_store(settings), open_usage_store(settings)
    caller = Subject("acme", "ann")
    for _ in range(3):
        first.add([UsageRecord([ACME, caller], Usage(10, 1, 100), NOON)])
        second.add([UsageRecord([ACME], Usage(5, 0, 50), NOON)])
    keys = [(DAY, caller), (MONTH, ACME), (DAY, Subject("other")), (DAY, ACME)]
    expected = [Usage(30, 3, 300), Usage(45, 3, 450), Usage(), Usage(45, 3, 450)]
    assert first.read(keys) == expected
    assert second.read(keys) == expected
    first.close()
    third = open_usage_store(settings)
    third.add([UsageRecord([ACME], Usage(1, 0, 0), NOON)])
    assert second.read([(DAY, ACME)]) == [Usage(46, 3, 450)]
    second.close()
    third.close()
    assert sorted(read_usage(settings, NOON)) == [
        (MONTH, ACME, Usage(46, 3, 450)),
        (MONTH, caller, Usage(30, 3, 300)),
        (DAY, ACME, Usage(46, 3, 450)),
        (DAY, caller, Usage(30, 3, 300)),
    ]


def test_nothing_is_used_at_first(settings: Settings) -> None:
    assert list(read_usage(settings, NOON)) == []
    store = open_usage_store(settings)
    assert store.read([]) == []
    assert store.read([(DAY, ACME)]) == [Usage()]
    store.close()


def test_a_new_day_and_the_end_of_the_retention(settings: Settings) -> None:
    store = open_usage_store(settings)
    store.add([UsageRecord([ACME], Usage(1, 0, 0), NOON)])
    store.add([UsageRecord([ACME], Usage(2, 0, 0), NOON + timedelta(days=1))])
    keys = [(DAY, ACME), ("2026-02-01", ACME), (MONTH, ACME), ("2026-02", ACME)]
    assert store.read(keys) == [Usage(1), Usage(2), Usage(1), Usage(2)]
    store.add([UsageRecord([ACME], Usage(3, 0, 0), NOON + timedelta(days=61))])
    store.add([UsageRecord([ACME], Usage(4, 0, 0), NOON + timedelta(days=64))])
    assert store.read(keys) == [Usage(), Usage(), Usage(1), Usage(2)]
    assert store.read([("2026-04", ACME)]) == [Usage(7)]
    store.add([UsageRecord([ACME], Usage(5, 0, 0), NOON + timedelta(days=460))])
    assert store.read([(MONTH, ACME), ("2026-02", ACME), ("2026-04", ACME)]) == [
        Usage(),
        Usage(),
        Usage(7),
    ]
    store.close()


def test_a_budget_holds_over_all_hosts(settings: Settings) -> None:
    limits = LimitSettings(day_tokens=100)

    async def check() -> None:
        stores = [open_usage_store(settings) for _ in range(4)]
        hosts = [Budgets(store, limits, clock=lambda: NOON) for store in stores]
        for host in hosts:
            await host.check("acme", "ann")
            host.record("acme", "ann", "openai:gpt-5", ModelUsage(20, 5))
        for host in hosts:
            # A check of the same host waits until its records are written.
            with contextlib.suppress(LimitExceededError):
                await host.check("acme", "ann")
        for host in hosts:
            with pytest.raises(LimitExceededError):
                await host.check("acme", "ann")
        # Code of agents may call a model on the event loop.
        with pytest.raises(LimitExceededError):
            hosts[0].check_blocking("acme", "ann", "openai:gpt-5")
        for host in hosts:
            await asyncio.to_thread(host.close)

    asyncio.run(check())


def test_usage_while_the_database_is_away_is_counted_once_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = PostgresServer()
    settings = Settings(data_dir=tmp_path, store=server.url)
    store, other = open_usage_store(settings), open_usage_store(settings)
    store.add([UsageRecord([ACME], Usage(1, 0, 0), NOON)])
    server.kill()
    with pytest.raises(JournalUnavailableError):
        store.add([UsageRecord([ACME], Usage(10, 0, 0), NOON)])
    with pytest.raises(JournalUnavailableError):
        store.read([(DAY, ACME)])
    server.start()
    assert store.read([(DAY, ACME)]) == [Usage(11)]
    assert other.read([(DAY, ACME)]) == [Usage(11)]
    other.close()
    server.kill()
    with pytest.raises(JournalUnavailableError):
        store.add([UsageRecord([ACME], Usage(10, 0, 0), NOON)])
    store.close()
    assert [record.message for record in caplog.records] == ["budget.not_recorded"]
    server.remove()


async def swallow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a connection and answer nothing, as a network that swallows packets."""
    try:
        await asyncio.sleep(PATIENCE_S)
    finally:
        writer.close()


async def test_checks_do_not_queue_while_the_database_swallows_packets() -> None:
    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    database = PostgresDatabase(f"postgresql://nobody@127.0.0.1:{port}/none")
    store = PostgresUsageStore(database, timeout_s=1.0)
    budgets = Budgets(store, LimitSettings(day_tokens=100), clock=lambda: NOON)
    errors: list[JournalUnavailableError] = []

    async def check(number: int) -> None:
        budgets.record("acme", f"caller {number}", "openai:gpt-5", ModelUsage(20, 5))
        try:
            await budgets.check("acme", f"caller {number}")
        except JournalUnavailableError as error:
            errors.append(error)

    started_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(check(number))
            await asyncio.sleep(0.02)
    took_s = time.monotonic() - started_s
    assert len(errors) == 20
    assert all(error.code is Code.UNAVAILABLE for error in errors)
    # Two deadlines at most, and not twenty: the calls that came last may need a second one.
    assert took_s < 4
    await asyncio.to_thread(budgets.close)
    server.close()


async def test_a_name_that_no_store_accepts_does_not_stop_the_budgets(settings: Settings) -> None:
    store = await asyncio.to_thread(open_usage_store, settings)
    budgets = Budgets(store, LimitSettings(day_tokens=100), clock=lambda: NOON)
    for caller in ("a\0", "\ud800", "a" * 5000):
        with pytest.raises(InvalidArgumentError, match="caller"):
            budgets.record("acme", caller, "openai:gpt-5", ModelUsage(20, 5))
        with pytest.raises(InvalidArgumentError, match="caller"):
            await budgets.check("acme", caller)
    budgets.record("acme", "ann", "openai:gpt-5", ModelUsage(90, 10))
    with pytest.raises(LimitExceededError):
        await budgets.check("acme", "ann")
    await asyncio.to_thread(budgets.close)


async def test_an_absurd_report_of_usage_does_not_stop_the_budgets(settings: Settings) -> None:
    store = await asyncio.to_thread(open_usage_store, settings)
    budgets = Budgets(store, LimitSettings(day_tokens=2**63), clock=lambda: NOON)
    for _ in range(3):
        budgets.record("acme", "ann", "openai:gpt-5", ModelUsage(2**62, 2**62))
    budgets.record("other", "bob", "openai:gpt-5", ModelUsage(90, 10))
    await budgets.check("acme", "ann")
    await budgets.check("other", "bob")
    await asyncio.to_thread(budgets.close)
    rows = await asyncio.to_thread(lambda: list(read_usage(settings, NOON)))
    used = {subject: usage for _, subject, usage in rows}
    assert used[Subject("acme")] == Usage(10**18, 10**18, 0)
    assert used[Subject("other")] == Usage(90, 10, 0)
