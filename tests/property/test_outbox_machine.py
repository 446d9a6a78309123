"""The outbox delivers at least once, in order, through one claimant at a time, until the end."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.examples import share
from harness.journal.outbox import HOUR_S, LEASE_S, Claim, OutboxBench
from trunkline.errors import FencedError
from trunkline.v1 import webhook_service_pb2

DONE = webhook_service_pb2.WEBHOOK_STATE_DONE
# Longer than a backoff pause and a lease, so that failed and abandoned deliveries return.
LONG_S = 2 * HOUR_S
TASKS = 2
WEBHOOKS = 2


@dataclass
class HeldClaim:
    """A claim as its claimant sees it: how far it has read and sent."""

    claim: Claim
    key: tuple[str, str]
    read_to: int
    sent_to: int
    until_s: float
    is_lost: bool = False
    """The host crashed, or was too slow and another one has the claim."""


class OutboxMachine(RuleBasedStateMachine):
    """Appends, claims, posts, records results, advances the clock, crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.bench = self.runner.run(self._open_bench())
        self.tasks: list[str] = []
        self.ended: set[str] = set()
        self.held_claims: list[HeldClaim] = []
        # The sequences that each receiver got, in order of arrival.
        self.received: dict[tuple[str, str], list[int]] = {}
        self.done: set[tuple[str, str]] = set()

    async def _open_bench(self) -> OutboxBench:
        return await OutboxBench.open(self.folder / "journal.db")

    def teardown(self) -> None:
        self.runner.run(self._deliver_all())
        for key, sequences in self.received.items():
            head = self.runner.run(self.bench.journal.head(key[0]))
            # At least once, without gaps, and in order except for repeated posts.
            assert set(sequences) == set(range(1, head + 1))
            for before, sequence in zip([0, *sequences], sequences, strict=False):
                assert sequence <= before + 1
        self.runner.run(self.bench.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    async def _deliver_all(self) -> None:
        for task_id in self.tasks:
            if task_id not in self.ended:
                await self.bench.end(task_id)
        while True:
            self.bench.clock.advance(LONG_S)
            claims = await self.bench.claim()
            if not claims:
                break
            for claim in claims:
                held_claim = await self._add_claim(claim)
                while held_claim.sent_to < held_claim.read_to:
                    self._post(held_claim)
                await self.bench.record_finished(claim, f"{held_claim.sent_to}.0")
        assert {webhook.state for webhook in await self.bench.outbox.list()} <= {DONE}

    @initialize()
    def make_the_first_task(self) -> None:
        self._make_a_task()

    @precondition(lambda self: len(self.tasks) < TASKS)
    @rule()
    def make_another_task(self) -> None:
        self._make_a_task()

    def _make_a_task(self) -> None:
        task_id = self.runner.run(self.bench.new_task(webhooks=WEBHOOKS))
        self.tasks.append(task_id)
        for number in range(WEBHOOKS):
            self.received[task_id, str(number)] = []

    @precondition(lambda self: len(self.ended) < len(self.tasks))
    @rule(data=st.data(), is_end=st.booleans())
    def append(self, data: st.DataObject, is_end: bool) -> None:
        task_id = data.draw(
            st.sampled_from([known_id for known_id in self.tasks if known_id not in self.ended])
        )
        self._write(task_id, is_end=is_end)

    def _write(self, task_id: str, *, is_end: bool) -> None:
        self.runner.run((self.bench.end if is_end else self.bench.write)(task_id))
        if is_end:
            self.ended.add(task_id)

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        for claim in self.runner.run(self.bench.claim(limit)):
            self.runner.run(self._add_claim(claim))

    @precondition(lambda self: self.held_claims)
    @rule(
        data=st.data(),
        posts=st.integers(0, 3),
        concurrent_write=st.sampled_from(["nothing", "more", "end"]),
        outcome=st.sampled_from(["none", "sent", "finished", "finished", "failed"]),
    )
    def deliver(self, data: st.DataObject, posts: int, concurrent_write: str, outcome: str) -> None:
        """Post some or all events, and record a result or none."""
        held_claim = data.draw(st.sampled_from(self.held_claims))
        if concurrent_write != "nothing" and held_claim.key[0] not in self.ended:
            self._write(held_claim.key[0], is_end=concurrent_write == "end")
        while held_claim.sent_to < held_claim.read_to and self._may_post(held_claim):
            if outcome != "finished" and not posts:
                break
            self._post(held_claim)
            posts -= 1
        if outcome == "sent":
            self._record(held_claim, sent=f"{held_claim.sent_to}.0")
        elif outcome == "finished" and held_claim.sent_to == held_claim.read_to:
            self._record(held_claim, finished=f"{held_claim.sent_to}.0")
        elif outcome == "failed":
            self._record(held_claim, failed="HTTP 503")

    @rule(
        seconds=st.sampled_from([LEASE_S / 2, LEASE_S - 1, LONG_S]),
        does_crash=st.sampled_from([False, False, True]),
    )
    def let_time_pass(self, seconds: float, does_crash: bool) -> None:
        self.bench.clock.advance(seconds)
        if does_crash:
            self.runner.run(self._crash())

    async def _crash(self) -> None:
        await self.bench.crash()
        for held_claim in self.held_claims:
            held_claim.is_lost = True

    async def _add_claim(self, claim: Claim) -> HeldClaim:
        webhook = claim.webhook
        key = (webhook.config.task_id, webhook.config.id)
        assert key not in self.done, "nothing is sent after the end"
        sent_to = int(webhook.cursor.partition(".")[0] or 0)
        for other in self.held_claims:
            if other.key == key:
                assert not self._may_post(other), "two claimants hold the webhook"
                other.is_lost = True
        held_claim = HeldClaim(
            claim=claim,
            key=key,
            read_to=await self.bench.journal.head(key[0]),
            sent_to=sent_to,
            until_s=self.bench.clock.now_s + LEASE_S,
        )
        self.held_claims.append(held_claim)
        return held_claim

    def _may_post(self, held_claim: HeldClaim) -> bool:
        """A claimant stops when its lease ends or its host has crashed."""
        return not held_claim.is_lost and self.bench.clock.now_s < held_claim.until_s

    def _post(self, held_claim: HeldClaim) -> None:
        held_claim.sent_to += 1
        self.received[held_claim.key].append(held_claim.sent_to)

    def _record(self, held_claim: HeldClaim, **outcome: str) -> None:
        request = webhook_service_pb2.RecordDeliveryRequest(claim_id=held_claim.claim.claim_id)
        for name, value in outcome.items():
            setattr(request, name, value)
        try:
            self.runner.run(self.bench.outbox.record(request))
        except FencedError:
            assert not self._may_post(held_claim)
            self.held_claims.remove(held_claim)
            return
        assert not held_claim.is_lost
        if "sent" in outcome:
            held_claim.until_s = self.bench.clock.now_s + LEASE_S
            return
        self.held_claims.remove(held_claim)
        head = self.runner.run(self.bench.journal.head(held_claim.key[0]))
        is_at_end = held_claim.read_to == head
        if "finished" in outcome and is_at_end and held_claim.key[0] in self.ended:
            self.done.add(held_claim.key)


def test_every_event_is_delivered_in_order_by_one_claimant_at_a_time() -> None:
    run_state_machine_as_test(OutboxMachine, settings=share(0.4, steps=30))
