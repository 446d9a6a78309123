"""The outbox: claims of pending webhooks, retries, and the stored state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.journal.builders import created
from harness.journal.outbox import ACCOUNT, HOUR_S, LEASE_S, Config, OutboxBench
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.tasks.outbox.configs import WEBHOOKS_OF_A_TASK
from trunkline.v1 import webhook_service_pb2

IDLE = webhook_service_pb2.WEBHOOK_STATE_IDLE
PENDING = webhook_service_pb2.WEBHOOK_STATE_PENDING
WAITING = webhook_service_pb2.WEBHOOK_STATE_WAITING
DEAD = webhook_service_pb2.WEBHOOK_STATE_DEAD
DONE = webhook_service_pb2.WEBHOOK_STATE_DONE


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[OutboxBench]:
    opened = await OutboxBench.open(tmp_path / "journal.db")
    yield opened
    await opened.close()


@pytest.fixture
async def slow_bench(tmp_path: Path) -> AsyncIterator[OutboxBench]:
    """Return an outbox whose store suspends each caller."""
    opened = await OutboxBench.open(tmp_path / "journal.db", is_suspending=True)
    yield opened
    await opened.close()


async def _pause_s(bench: OutboxBench, config_id: str = "0") -> float:
    """Return the seconds until the next attempt of a webhook."""
    (webhook,) = [each for each in await bench.outbox.list() if each.config.id == config_id]
    return (webhook.next_attempt.ToNanoseconds() - bench.clock.time_ns) / 1e9


async def test_pauses_double_up_to_an_hour_and_a_webhook_is_dead_after_a_day(
    bench: OutboxBench,
) -> None:
    await bench.new_task()
    started_s = bench.clock.now_s
    pauses: list[float] = []
    while True:
        await bench.record_failure(await bench.claim_one())
        webhook = await bench.get_webhook()
        if webhook.state == DEAD:
            break
        assert webhook.state == WAITING
        pause_s = await _pause_s(bench)
        bench.clock.advance(pause_s / 2)
        assert await bench.claim() == []
        # The two clocks of a host differ by less than a microsecond.
        bench.clock.advance(pause_s / 2 + 1e-6)
        pauses.append(pause_s)
    for number, pause_s in enumerate(pauses[:-1]):
        full_s = min(float(2**number), HOUR_S)
        assert full_s / 2 <= pause_s <= full_s
    assert bench.clock.now_s - started_s == pytest.approx(24 * HOUR_S, abs=1)
    assert (await bench.get_webhook()).attempts == len(pauses) + 1
    bench.clock.advance(48 * HOUR_S)
    assert await bench.claim() == []


@pytest.mark.parametrize(
    ("retry_after_s", "pause_s"), [(-5, 1), (0, 1), (1, 1), (120, 120), (7 * 24 * 3600, HOUR_S)]
)
async def test_retry_after_is_respected_up_to_an_hour(
    bench: OutboxBench, retry_after_s: int, pause_s: float
) -> None:
    await bench.new_task()
    await bench.record_failure(await bench.claim_one(), retry_after_s=retry_after_s)
    due_s = await _pause_s(bench)
    assert min(1, pause_s) / 2 <= due_s <= pause_s
    if retry_after_s > 1:
        assert due_s == pytest.approx(pause_s)
    bench.clock.advance(due_s - 0.1)
    assert await bench.claim() == []
    bench.clock.advance(0.2)
    await bench.record_failure(await bench.claim_one())
    # The earlier Retry-After no longer applies.
    assert 1 <= await _pause_s(bench) <= 2


async def test_the_last_attempt_is_not_delayed_by_retry_after(bench: OutboxBench) -> None:
    await bench.new_task()
    await bench.record_failure(await bench.claim_one())
    bench.clock.advance(24 * HOUR_S - 10)
    await bench.record_failure(await bench.claim_one(), retry_after_s=600)
    bench.clock.advance(10)
    await bench.record_failure(await bench.claim_one())
    assert (await bench.get_webhook()).state == DEAD


async def test_a_webhook_has_the_trace_of_its_task(bench: OutboxBench) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    task_id = bench.journal.new_task_id()
    made = created(account=ACCOUNT)
    made.created.traceparent = traceparent
    early = bench.configs.build_for_new_task(
        task_id, made.created, Config(url="https://x.example"), "1.0"
    )
    await bench.journal.create(task_id, made)
    await bench.register(task_id, "late")
    late = (await bench.claim_one()).webhook
    assert early.traceparent == late.traceparent == traceparent


async def test_after_a_crash_claims_are_returned_and_pauses_continue(
    bench: OutboxBench,
) -> None:
    await bench.new_task(webhooks=2)
    failing, working = await bench.claim()
    await bench.record_failure(failing)
    await bench.record_progress(working, "1.0")
    due_s = await _pause_s(bench, failing.webhook.config.id)
    bench.clock.advance(due_s - 0.3)
    await bench.crash()
    second_claim = await bench.claim_one()
    assert (second_claim.webhook.config.id, second_claim.webhook.cursor) == ("1", "1.0")
    with pytest.raises(FencedError):
        await bench.record_finished(working, "2.0")
    bench.clock.advance(0.2)
    assert await bench.claim() == []
    bench.clock.advance(0.2)
    assert (await bench.claim_one()).webhook.attempts == 1


async def test_a_crash_does_not_extend_the_retry_period(bench: OutboxBench) -> None:
    await bench.new_task()
    await bench.record_failure(await bench.claim_one())
    bench.clock.advance(24 * HOUR_S)
    await bench.crash()
    await bench.record_failure(await bench.claim_one())
    assert (await bench.get_webhook()).state == DEAD
    await bench.crash()
    assert (await bench.get_webhook()).state == DEAD
    assert await bench.claim() == []


async def test_a_replayed_dead_webhook_continues_after_its_cursor(
    bench: OutboxBench,
) -> None:
    task_id = await bench.new_task(webhooks=2)
    first, second = await bench.claim()
    await bench.record_progress(first, "1.0")
    await bench.record_failure(first)
    await bench.record_finished(second, "2.0")
    bench.clock.advance(24 * HOUR_S)
    await bench.record_failure(await bench.claim_one())
    assert await bench.outbox.replay(task_id) == 1
    second_claim = await bench.claim_one()
    assert (second_claim.webhook.config.id, second_claim.webhook.cursor) == ("0", "1.0")
    assert second_claim.webhook.attempts == 0
    # All events, including those that a claimant is sending.
    assert await bench.outbox.replay(task_id, from_start=True) == 2
    with pytest.raises(FencedError):
        await bench.record_finished(second_claim, "2.0")
    assert [claim.webhook.cursor for claim in await bench.claim()] == ["", ""]
    with pytest.raises(TaskNotFoundError):
        await bench.outbox.replay(task_id, "another")


async def test_registering_an_equal_webhook_continues_and_a_changed_one_restarts(
    bench: OutboxBench,
) -> None:
    task_id = await bench.new_task()
    claim = await bench.claim_one()
    await bench.register(task_id, "0")
    await bench.record_progress(claim, "1.0")
    await bench.register(task_id, "0", token="new")
    with pytest.raises(FencedError):
        await bench.record_progress(claim, "2.0")
    second_claim = await bench.claim_one()
    assert (second_claim.webhook.cursor, second_claim.webhook.config.token) == ("", "new")
    await bench.crash()
    assert (await bench.claim_one()).webhook.config.token == "new"


async def test_a_deleted_webhook_is_not_sent_anything_more(bench: OutboxBench) -> None:
    task_id = await bench.new_task(webhooks=2)
    first, second = await bench.claim()
    await bench.configs.delete(task_id, first.webhook.config.id, account=ACCOUNT)
    with pytest.raises(FencedError):
        await bench.record_finished(first, "1.0")
    await bench.record_failure(second)
    await bench.crash()
    assert [webhook.config.id for webhook in await bench.outbox.list()] == ["1"]


async def test_a_renewed_claim_is_no_success(bench: OutboxBench) -> None:
    await bench.new_task()
    await bench.record_failure(await bench.claim_one())
    since = (await bench.get_webhook()).failing_since
    bench.clock.advance(HOUR_S)
    claim = await bench.claim_one()
    await bench.record_progress(claim, "")
    assert (await bench.get_webhook()).attempts == 1
    await bench.record_failure(claim)
    assert ((await bench.get_webhook()).attempts, (await bench.get_webhook()).failing_since) == (
        2,
        since,
    )
    bench.clock.advance(HOUR_S)
    claim = await bench.claim_one()
    await bench.record_progress(claim, "1.0")
    assert ((await bench.get_webhook()).attempts, (await bench.get_webhook()).last_error) == (0, "")
    await bench.record_failure(claim)
    bench.clock.advance(HOUR_S)
    await bench.record_progress(await bench.claim_one(), "")
    assert ((await bench.get_webhook()).attempts, (await bench.get_webhook()).cursor) == (1, "1.0")


async def test_a_webhook_whose_receiver_is_gone_is_dead_until_it_is_replayed(
    bench: OutboxBench,
) -> None:
    task_id = await bench.new_task()
    claim = await bench.claim_one()
    await bench.record_gone(claim)
    assert ((await bench.get_webhook()).state, (await bench.get_webhook()).last_error) == (
        DEAD,
        "HTTP 410",
    )
    with pytest.raises(FencedError):
        await bench.record_progress(claim, "1.0")
    await bench.write(task_id)
    bench.clock.advance(HOUR_S)
    assert await bench.claim() == []
    assert await bench.outbox.replay(task_id) == 1
    await bench.claim_one()


@pytest.mark.parametrize("cursor", ["x", "1", "1.", "-1.0", "1.0.0", "٣.٠", "1.0 "])  # noqa: RUF001
async def test_an_invalid_event_id_is_refused_and_changes_nothing(
    bench: OutboxBench, cursor: str
) -> None:
    await bench.new_task()
    claim = await bench.claim_one()
    with pytest.raises(InvalidArgumentError):
        await bench.record_progress(claim, cursor)
    with pytest.raises(InvalidArgumentError):
        await bench.record_finished(claim, cursor)
    await bench.record_progress(claim, "2.1")
    with pytest.raises(InvalidArgumentError, match=r"before 2\.1"):
        await bench.record_progress(claim, "2.0")
    assert (await bench.get_webhook()).cursor == "2.1"


async def test_a_waiting_claim_ends_when_the_host_drains(bench: OutboxBench) -> None:
    async def wait() -> None:
        with pytest.raises(PeerUnavailableError):
            await bench.outbox.claim(limit=1, wait_s=50)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        bench.outbox.drain()
    # Pending deliveries are still returned.
    await bench.new_task()
    assert len(await bench.claim()) == 1
    with pytest.raises(PeerUnavailableError):
        await bench.claim()


async def test_pages_of_a_tasks_webhooks_show_each_of_them_once(bench: OutboxBench) -> None:
    task_id = await bench.new_task(webhooks=5)
    configs: list[Config] = []
    token = ""
    while True:
        page, token = await bench.configs.list(
            task_id, account=ACCOUNT, page_size=2, page_token=token
        )
        configs += page
        if not token:
            break
    assert [config.id for config in configs] == ["0", "1", "2", "3", "4"]
    with pytest.raises(InvalidArgumentError):
        await bench.configs.list(task_id, account=ACCOUNT, page_size=-1)
    with pytest.raises(InvalidArgumentError):
        await bench.configs.list(task_id, account=ACCOUNT, page_token="invalid")


async def test_lists_filter_by_the_current_state(bench: OutboxBench) -> None:
    task_id = await bench.new_task(webhooks=4)
    done_id = await bench.new_task()
    head = await bench.end(done_id)
    idle, dead, _, _, done = await bench.claim()
    await bench.record_finished(done, f"{head}.0")
    await bench.record_failure(dead)
    await bench.record_finished(idle, f"{await bench.journal.head(task_id)}.0")
    bench.clock.advance(24 * HOUR_S)
    claims = {claim.webhook.config.id: claim for claim in await bench.claim()}
    await bench.record_failure(claims["1"])
    await bench.record_failure(claims["2"])
    states = {IDLE: "0", DEAD: "1", WAITING: "2", PENDING: "3"}
    for state, config_id in states.items():
        assert [webhook.config.id for webhook in await bench.outbox.list(state=state)] == [
            config_id
        ]
    assert [webhook.config.task_id for webhook in await bench.outbox.list(state=DONE)] == [done_id]
    assert [webhook.config.id for webhook in await bench.outbox.list(task_id=task_id)] == [
        "3",
        "2",
        "1",
        "0",
    ]


async def test_watchers_learn_what_became_of_a_webhook(bench: OutboxBench) -> None:
    with bench.outbox.watch(ACCOUNT) as changes, bench.outbox.watch("other") as others:

        async def take() -> list[webhook_service_pb2.Webhook]:
            keys, is_incomplete = await changes.take()
            assert not is_incomplete
            return [await bench.outbox.describe(key) for key in keys]

        task_id = await bench.new_task()
        (webhook,) = await take()
        assert (webhook.config.id, webhook.state) == ("0", PENDING)
        claim = await bench.claim_one()
        await bench.record_failure(claim)
        (webhook,) = await take()
        assert (webhook.state, webhook.last_error) == (WAITING, "HTTP 503")
        bench.clock.advance(HOUR_S)
        await bench.record_gone(await bench.claim_one())
        # That it is due again, and that it is dead, is one change.
        (webhook,) = await take()
        assert (webhook.state, webhook.last_error) == (DEAD, "HTTP 410")
        await bench.outbox.replay(task_id)
        assert [each.state for each in await take()] == [PENDING]
        await bench.record_finished(await bench.claim_one(), "2.0")
        assert [each.state for each in await take()] == [IDLE]
        await bench.write(task_id)
        assert [each.state for each in await take()] == [PENDING]
        await bench.configs.delete(task_id, "0", account=ACCOUNT)
        assert await take() == [webhook_service_pb2.Webhook(config=Config(task_id=task_id, id="0"))]
        await bench.register(task_id, "1", token="t0ken")
        (webhook,) = await take()
        assert webhook.config.token == ""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await others.take()
    with bench.outbox.watch() as everything:
        await bench.register(task_id, "2")
        assert (await everything.take())[0] == [(task_id, "2")]


async def test_a_claim_that_is_canceled_claims_nothing(slow_bench: OutboxBench) -> None:
    for _ in range(3):
        await slow_bench.end(await slow_bench.new_task())
    iterations, is_complete = 0, False
    while not is_complete:
        # The rows of ended tasks are not in memory, so each claim reads the store again.
        await slow_bench.crash()
        async with asyncio.TaskGroup() as group:
            claiming = group.create_task(slow_bench.claim())
            await iterate(iterations)
            is_complete = not claiming.cancel()
        if not is_complete:
            assert len(await slow_bench.claim()) == 3
        iterations += 1
    assert iterations > 3


@pytest.mark.parametrize("is_canceled", [False, True])
@pytest.mark.parametrize("is_replay", [False, True])
async def test_a_webhook_that_is_removed_stays_removed(
    slow_bench: OutboxBench, *, is_replay: bool, is_canceled: bool
) -> None:
    """Its removal begins at each step of a replay, or of a registration in its place."""

    async def change() -> None:
        if is_replay:
            with suppress(TaskNotFoundError):
                await slow_bench.outbox.replay(task_id)
        else:
            await slow_bench.register(task_id, "0", token="new")

    iterations, is_complete = 0, False
    while not is_complete:
        task_id = await slow_bench.new_task()
        await slow_bench.record_gone(await slow_bench.claim_one())
        async with asyncio.TaskGroup() as group:
            changing = group.create_task(change())
            await iterate(1 + iterations)
            is_complete = changing.done()
            if is_canceled:
                changing.cancel()
            await slow_bench.configs.delete(task_id, "0", account=ACCOUNT)
        assert await slow_bench.outbox.list() == []
        assert await slow_bench.claim() == []
        await slow_bench.crash()
        assert await slow_bench.outbox.list() == []
        iterations += 1
    assert iterations > 3


async def test_a_removal_that_is_canceled_ends_before_a_replay(slow_bench: OutboxBench) -> None:
    iterations, is_complete = 0, False
    while not is_complete:
        task_id = await slow_bench.new_task()
        await slow_bench.record_gone(await slow_bench.claim_one())
        async with asyncio.TaskGroup() as group:
            removing = group.create_task(slow_bench.configs.delete(task_id, "0", account=ACCOUNT))
            await iterate(iterations)
            is_complete = not removing.cancel()
            with suppress(TaskNotFoundError):
                # The removal was canceled before its write.
                assert await slow_bench.outbox.replay(task_id) == 1
                await slow_bench.crash()
                assert (await slow_bench.get_webhook(task_id)).state == PENDING
                await slow_bench.configs.delete(task_id, "0", account=ACCOUNT)
        assert await slow_bench.outbox.list() == []
        iterations += 1
    assert iterations > 3


async def test_a_removal_that_is_canceled_is_published(slow_bench: OutboxBench) -> None:
    removed_count, iterations, is_complete = 0, 0, False
    while not is_complete:
        task_id = await slow_bench.new_task()
        with slow_bench.outbox.watch(ACCOUNT) as changes:
            async with asyncio.TaskGroup() as group:
                removing = group.create_task(
                    slow_bench.configs.delete(task_id, "0", account=ACCOUNT)
                )
                await iterate(iterations)
                is_complete = not removing.cancel()
            if not await slow_bench.outbox.list(task_id=task_id):
                removed_count += not is_complete
                async with asyncio.timeout(1):
                    assert (await changes.take())[0] == [(task_id, "0")]
        iterations += 1
    assert removed_count > 1


async def test_the_removal_of_an_unknown_webhook_is_not_published(bench: OutboxBench) -> None:
    task_id = await bench.new_task()
    with bench.outbox.watch() as changes:
        await bench.configs.delete(task_id, "unknown", account=ACCOUNT)
        await bench.configs.delete(task_id, "0", account=ACCOUNT)
        assert (await changes.take())[0] == [(task_id, "0")]


async def test_claimants_at_the_same_time_claim_all_that_is_ready(slow_bench: OutboxBench) -> None:
    for _ in range(3):
        await slow_bench.end(await slow_bench.new_task())
    # The rows of ended tasks are not in memory, so the claimants wait for the store.
    await slow_bench.crash()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        claiming = [
            group.create_task(slow_bench.outbox.claim(limit=1, lease_s=LEASE_S, wait_s=50.0))
            for _ in range(3)
        ]
    assert [len(task.result()) for task in claiming] == [1, 1, 1]
    assert len({claim.claim_id for task in claiming for claim in task.result()}) == 3


async def test_a_webhook_whose_journal_cannot_be_read_does_not_hide_others(
    bench: OutboxBench, tmp_path: Path
) -> None:
    unreadable = await OutboxBench.open(tmp_path / "unreadable.db")
    await unreadable.end(await unreadable.new_task())
    await unreadable.crash()
    await bench.outbox.open(unreadable.journal)
    await unreadable.close()
    task_id = await bench.new_task()
    (claim,) = await bench.claim(limit=1)
    assert claim.webhook.config.task_id == task_id


async def test_a_disk_that_is_stuck_delays_only_its_own_webhooks(
    bench: OutboxBench, tmp_path: Path
) -> None:
    stuck = await OutboxBench.open(tmp_path / "stuck.db")
    await bench.outbox.open(stuck.journal)
    task_id, stuck_id = await bench.new_task(), await stuck.new_task()
    stuck.disk.clear()
    async with asyncio.TaskGroup() as group:
        try:
            waiting = group.create_task(bench.register(stuck_id, "new"))
            await iterate(5)
            async with asyncio.timeout(1):
                await bench.register(task_id, "new")
                assert await bench.outbox.replay(task_id, from_start=True) == 2
                await bench.configs.delete(task_id, "new", account=ACCOUNT)
            assert not waiting.done()
        finally:
            stuck.disk.set()
    assert len(await bench.outbox.list(task_id=stuck_id)) == 2
    await stuck.close()


async def test_a_registration_that_is_canceled_again_and_again_counts(bench: OutboxBench) -> None:
    task_id = await bench.new_task(webhooks=WEBHOOKS_OF_A_TASK - 1)

    async def register_too_many() -> None:
        with pytest.raises(InvalidArgumentError, match="delete one first"):
            await bench.register(task_id, "too many")

    bench.disk.clear()
    async with asyncio.TaskGroup() as group:
        canceled = group.create_task(bench.register(task_id, "last"))
        for _ in range(3):
            await iterate(5)
            canceled.cancel()
        group.create_task(register_too_many())
        await iterate(5)
        bench.disk.set()
    assert canceled.cancelled()
    assert len(await bench.outbox.list(task_id=task_id)) == WEBHOOKS_OF_A_TASK


async def iterate(count: int) -> None:
    """Let the event loop run so many iterations."""
    for _ in range(count):
        await asyncio.sleep(0)
