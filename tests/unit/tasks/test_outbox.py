"""Webhooks that have something to send: who gets them, when they are tried again, what stays."""

import asyncio
from collections.abc import Iterator
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
from trunkline.tasks.outbox import RetryPolicy
from trunkline.v1 import webhook_service_pb2

IDLE = webhook_service_pb2.WEBHOOK_STATE_IDLE
PENDING = webhook_service_pb2.WEBHOOK_STATE_PENDING
WAITING = webhook_service_pb2.WEBHOOK_STATE_WAITING
DEAD = webhook_service_pb2.WEBHOOK_STATE_DEAD
DONE = webhook_service_pb2.WEBHOOK_STATE_DONE


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[OutboxBench]:
    one = OutboxBench(tmp_path / "journal.db")
    yield one
    one.close()


async def test_one_that_is_claimed_is_nobody_elses(desk: OutboxBench) -> None:
    await desk.new_task(webhooks=3)
    first = await desk.claim(limit=2)
    second = await desk.claim(limit=2)
    assert [one.webhook.config.id for one in [*first, *second]] == ["0", "1", "2"]
    assert await desk.claim() == []


async def test_what_comes_while_it_is_claimed_is_handed_out_behind_it(desk: OutboxBench) -> None:
    task_id = await desk.new_task()
    claim = await desk.claim_one()
    head = desk.journal.head(task_id)
    await desk.write(task_id)
    assert await desk.claim() == []
    await desk.finished(claim, f"{head}.0")
    assert desk.shown().state == PENDING
    again = await desk.claim_one()
    assert again.webhook.cursor == f"{head}.0"
    await desk.finished(again)
    assert (desk.shown().state, desk.shown().cursor) == (IDLE, f"{head}.0")
    assert await desk.claim() == []


async def test_a_claim_ends_with_its_lease_and_a_record_of_something_sent_renews_it(
    desk: OutboxBench,
) -> None:
    await desk.new_task()
    claim = await desk.claim_one()
    for _ in range(3):
        desk.clock.go_on(LEASE_S - 1)
        assert await desk.claim() == []
        await desk.sent(claim, "1.0")
    desk.clock.go_on(LEASE_S)
    other = await desk.claim_one()
    assert other.webhook.cursor == "1.0"
    for record in (desk.sent, desk.finished, desk.failed):
        with pytest.raises(FencedError):
            await record(claim, "2.0")
    assert desk.shown().cursor == "1.0"
    await desk.finished(other, "2.0")


async def test_a_task_that_has_ended_is_done_when_all_was_sent(desk: OutboxBench) -> None:
    task_id = await desk.new_task()
    claim = await desk.claim_one()
    head = await desk.end(task_id)
    await desk.finished(claim, f"{head - 1}.3")
    assert desk.shown().state == PENDING
    await desk.finished(await desk.claim_one(), f"{head}.0")
    assert desk.shown().state == DONE
    assert await desk.claim() == []
    assert desk.journal._subscribers.is_empty


async def test_a_webhook_of_a_task_that_has_ended_is_handed_out_once(desk: OutboxBench) -> None:
    task_id = await desk.new_task(webhooks=0)
    head = await desk.end(task_id)
    await desk.register(task_id, "late")
    await desk.finished(await desk.claim_one(), f"{head}.0")
    assert desk.shown().state == DONE
    assert await desk.claim() == []


async def test_pauses_double_up_to_an_hour_and_after_a_day_it_is_given_up(
    desk: OutboxBench,
) -> None:
    await desk.new_task()
    began_s = desk.clock.now_s
    pauses: list[float] = []
    while True:
        await desk.failed(await desk.claim_one())
        shown = desk.shown()
        if shown.state == DEAD:
            break
        assert shown.state == WAITING
        pause_s = (shown.next_attempt.ToNanoseconds() - desk.clock.time_ns) / 1e9
        desk.clock.go_on(pause_s / 2)
        assert await desk.claim() == []
        desk.clock.go_on(pause_s / 2)
        pauses.append(pause_s)
    assert pauses[:13] == [*(float(2**number) for number in range(12)), HOUR_S]
    assert set(pauses[12:-1]) == {HOUR_S}
    assert desk.clock.now_s - began_s == pytest.approx(24 * HOUR_S, abs=1)
    assert desk.shown().attempts == len(pauses) + 1
    desk.clock.go_on(48 * HOUR_S)
    assert await desk.claim() == []
    assert desk.journal._subscribers.is_empty


@pytest.mark.parametrize(
    ("retry_after_s", "pause_s"), [(-5, 1), (0, 1), (1, 1), (120, 120), (7 * 24 * 3600, HOUR_S)]
)
async def test_a_receiver_is_left_alone_for_as_long_as_it_wants_up_to_an_hour(
    desk: OutboxBench, retry_after_s: int, pause_s: float
) -> None:
    await desk.new_task()
    await desk.failed(await desk.claim_one(), retry_after_s=retry_after_s)
    due_ns = desk.shown().next_attempt.ToNanoseconds()
    assert (due_ns - desk.clock.time_ns) / 1e9 == pytest.approx(pause_s)
    desk.clock.go_on(pause_s - 0.5)
    assert await desk.claim() == []
    desk.clock.go_on(0.5)
    await desk.failed(await desk.claim_one())
    # What it wanted then is not wanted any more.
    due_ns = desk.shown().next_attempt.ToNanoseconds()
    assert (due_ns - desk.clock.time_ns) / 1e9 == pytest.approx(2)


async def test_the_last_try_is_not_put_off_by_what_a_receiver_wants(desk: OutboxBench) -> None:
    await desk.new_task()
    await desk.failed(await desk.claim_one())
    desk.clock.go_on(24 * HOUR_S - 10)
    await desk.failed(await desk.claim_one(), retry_after_s=600)
    desk.clock.go_on(10)
    await desk.failed(await desk.claim_one())
    assert desk.shown().state == DEAD


async def test_a_webhook_knows_the_trace_of_its_task(desk: OutboxBench) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    task_id = desk.journal.new_task_id()
    made = created(account=ACCOUNT)
    made.created.traceparent = traceparent
    early = desk.configs.build_for_new_task(
        task_id, made.created, Config(url="https://x.example"), "1.0"
    )
    await desk.journal.create(task_id, made)
    await desk.register(task_id, "late")
    late = (await desk.claim_one()).webhook
    assert early.traceparent == late.traceparent == traceparent


def test_pauses_of_many_are_apart_but_never_longer() -> None:
    shortest, longest = RetryPolicy(jitter=lambda: 1.0), RetryPolicy(jitter=lambda: 0.0)
    for attempts in (1, 5, 13, 10_000):
        assert shortest.backoff_s(attempts) == 0.75 * longest.backoff_s(attempts)
    assert longest.backoff_s(10_000) == HOUR_S
    assert 0.75 <= RetryPolicy().backoff_s(1) <= 1.0


async def test_a_success_lets_failures_be_forgotten(desk: OutboxBench) -> None:
    await desk.new_task()
    await desk.failed(await desk.claim_one(), "x" * 10_000)
    assert len(desk.shown().last_error) == 500
    desk.clock.go_on(1)
    await desk.sent(await desk.claim_one(), "1.0")
    shown = desk.shown()
    assert (shown.attempts, shown.last_error, shown.state) == (0, "", PENDING)
    assert not shown.HasField("failing_since")
    assert not shown.HasField("next_attempt")


async def test_new_events_dont_hurry_one_that_waits(desk: OutboxBench) -> None:
    task_id = await desk.new_task()
    await desk.failed(await desk.claim_one())
    await desk.write(task_id)
    assert await desk.claim() == []
    desk.clock.go_on(1)
    assert len(await desk.claim()) == 1


async def test_after_a_crash_what_was_under_way_is_handed_out_again_and_pauses_go_on(
    desk: OutboxBench,
) -> None:
    await desk.new_task(webhooks=2)
    failing, working = await desk.claim()
    await desk.failed(failing)
    await desk.sent(working, "1.0")
    desk.clock.go_on(0.4)
    desk.crash()
    again = await desk.claim_one()
    assert (again.webhook.config.id, again.webhook.cursor) == ("1", "1.0")
    with pytest.raises(FencedError):
        await desk.finished(working, "2.0")
    desk.clock.go_on(0.5)
    assert await desk.claim() == []
    desk.clock.go_on(0.2)
    assert (await desk.claim_one()).webhook.attempts == 1


async def test_after_a_crash_it_is_given_up_when_it_would_have_been(desk: OutboxBench) -> None:
    await desk.new_task()
    await desk.failed(await desk.claim_one())
    desk.clock.go_on(24 * HOUR_S)
    desk.crash()
    await desk.failed(await desk.claim_one())
    assert desk.shown().state == DEAD
    desk.crash()
    assert desk.shown().state == DEAD
    assert await desk.claim() == []


async def test_an_idle_webhook_is_not_handed_out_after_a_crash(desk: OutboxBench) -> None:
    task_id = await desk.new_task()
    head = desk.journal.head(task_id)
    await desk.finished(await desk.claim_one(), f"{head}.0")
    desk.crash()
    assert await desk.claim() == []
    await desk.write(task_id)
    assert len(await desk.claim()) == 1


async def test_a_dead_one_goes_on_behind_what_was_sent_when_it_is_replayed(
    desk: OutboxBench,
) -> None:
    task_id = await desk.new_task(webhooks=2)
    first, second = await desk.claim()
    await desk.sent(first, "1.0")
    await desk.failed(first)
    await desk.finished(second, "2.0")
    desk.clock.go_on(24 * HOUR_S)
    await desk.failed(await desk.claim_one())
    assert await desk.outbox.replay(task_id) == 1
    again = await desk.claim_one()
    assert (again.webhook.config.id, again.webhook.cursor) == ("0", "1.0")
    assert again.webhook.attempts == 0
    # All of it, also what is being sent just now.
    assert await desk.outbox.replay(task_id, from_start=True) == 2
    with pytest.raises(FencedError):
        await desk.finished(again, "2.0")
    assert [one.webhook.cursor for one in await desk.claim()] == ["", ""]
    with pytest.raises(TaskNotFoundError):
        await desk.outbox.replay(task_id, "another")


async def test_the_same_webhook_again_goes_on_and_another_in_its_place_begins_anew(
    desk: OutboxBench,
) -> None:
    task_id = await desk.new_task()
    claim = await desk.claim_one()
    await desk.register(task_id, "0")
    await desk.sent(claim, "1.0")
    await desk.register(task_id, "0", token="new")
    with pytest.raises(FencedError):
        await desk.sent(claim, "2.0")
    again = await desk.claim_one()
    assert (again.webhook.cursor, again.webhook.config.token) == ("", "new")
    desk.crash()
    assert (await desk.claim_one()).webhook.config.token == "new"


async def test_one_that_was_removed_is_sent_nothing_more(desk: OutboxBench) -> None:
    task_id = await desk.new_task(webhooks=2)
    first, second = await desk.claim()
    await desk.configs.delete(task_id, first.webhook.config.id, account=ACCOUNT)
    with pytest.raises(FencedError):
        await desk.finished(first, "1.0")
    await desk.failed(second)
    desk.crash()
    assert [one.config.id for one in desk.outbox.list()] == ["1"]


async def test_a_renewed_claim_is_no_success(desk: OutboxBench) -> None:
    await desk.new_task()
    await desk.failed(await desk.claim_one())
    since = desk.shown().failing_since
    desk.clock.go_on(HOUR_S)
    claim = await desk.claim_one()
    await desk.sent(claim, "")
    assert desk.shown().attempts == 1
    await desk.failed(claim)
    assert (desk.shown().attempts, desk.shown().failing_since) == (2, since)
    desk.clock.go_on(HOUR_S)
    claim = await desk.claim_one()
    await desk.sent(claim, "1.0")
    assert (desk.shown().attempts, desk.shown().last_error) == (0, "")
    await desk.failed(claim)
    desk.clock.go_on(HOUR_S)
    await desk.sent(await desk.claim_one(), "")
    assert (desk.shown().attempts, desk.shown().cursor) == (1, "1.0")


async def test_one_whose_receiver_is_gone_is_given_up_on_until_it_is_replayed(
    desk: OutboxBench,
) -> None:
    task_id = await desk.new_task()
    claim = await desk.claim_one()
    await desk.gone(claim)
    assert (desk.shown().state, desk.shown().last_error) == (DEAD, "HTTP 410")
    with pytest.raises(FencedError):
        await desk.sent(claim, "1.0")
    await desk.write(task_id)
    desk.clock.go_on(HOUR_S)
    assert await desk.claim() == []
    assert await desk.outbox.replay(task_id) == 1
    await desk.claim_one()


async def test_event_ids_of_later_epochs_are_event_ids(desk: OutboxBench) -> None:
    await desk.new_task()
    await desk.sent(await desk.claim_one(), "1.0-2")
    assert desk.shown().cursor == "1.0-2"


@pytest.mark.parametrize("cursor", ["x", "1", "1.", "-1.0", "1.0.0", "٣.٠", "1.0 "])  # noqa: RUF001
async def test_what_is_no_event_id_is_refused_and_nothing_changes(
    desk: OutboxBench, cursor: str
) -> None:
    await desk.new_task()
    claim = await desk.claim_one()
    with pytest.raises(InvalidArgumentError):
        await desk.sent(claim, cursor)
    with pytest.raises(InvalidArgumentError):
        await desk.finished(claim, cursor)
    await desk.sent(claim, "2.1")
    with pytest.raises(InvalidArgumentError, match=r"before 2\.1"):
        await desk.sent(claim, "2.0")
    assert desk.shown().cursor == "2.1"


async def test_claims_end_their_wait_when_the_host_goes_away(desk: OutboxBench) -> None:
    async def wait() -> None:
        with pytest.raises(PeerUnavailableError):
            await desk.outbox.claim(limit=1, wait_s=50)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        desk.outbox.drain()
    # What there is to send is still handed out.
    await desk.new_task()
    assert len(await desk.claim()) == 1
    with pytest.raises(PeerUnavailableError):
        await desk.claim()


async def test_pages_of_a_tasks_webhooks_show_each_of_them_once(desk: OutboxBench) -> None:
    task_id = await desk.new_task(webhooks=5)
    found: list[Config] = []
    token = ""
    while True:
        page, token = desk.configs.list(task_id, account=ACCOUNT, page_size=2, page_token=token)
        found += page
        if not token:
            break
    assert [config.id for config in found] == ["0", "1", "2", "3", "4"]
    with pytest.raises(InvalidArgumentError):
        desk.configs.list(task_id, account=ACCOUNT, page_size=-1)
    with pytest.raises(InvalidArgumentError):
        desk.configs.list(task_id, account=ACCOUNT, page_token="gone")


async def test_lists_show_webhooks_in_the_state_they_are_in_now(desk: OutboxBench) -> None:
    task_id = await desk.new_task(webhooks=4)
    done_id = await desk.new_task()
    head = await desk.end(done_id)
    idle, dead, _, _, done = await desk.claim()
    await desk.finished(done, f"{head}.0")
    await desk.failed(dead)
    await desk.finished(idle, f"{desk.journal.head(task_id)}.0")
    desk.clock.go_on(24 * HOUR_S)
    claims = {one.webhook.config.id: one for one in await desk.claim()}
    await desk.failed(claims["1"])
    await desk.failed(claims["2"])
    states = {IDLE: "0", DEAD: "1", WAITING: "2", PENDING: "3"}
    for state, config_id in states.items():
        assert [one.config.id for one in desk.outbox.list(state=state)] == [config_id]
    assert [one.config.task_id for one in desk.outbox.list(state=DONE)] == [done_id]
    assert [one.config.id for one in desk.outbox.list(task_id=task_id)] == ["3", "2", "1", "0"]
