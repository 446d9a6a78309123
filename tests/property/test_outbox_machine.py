"""The outbox against what it promises: at least once, in order, by one at a time, and then done."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.journal.outbox import HOUR_S, LEASE_S, Claim, OutboxBench
from trunkline.errors import FencedError
from trunkline.v1 import webhook_service_pb2

DONE = webhook_service_pb2.WEBHOOK_STATE_DONE
# More than a pause and a lease, so that whatever failed or was left behind comes back.
LONG_S = 2 * HOUR_S
TASKS = 2
WEBHOOKS = 2


@dataclass
class Held:
    """A claim as its claimant sees it: what it has read, and how far it has sent."""

    claim: Claim
    key: tuple[str, str]
    read_to: int
    sent_to: int
    until_s: float
    is_lost: bool = False
    """Its host has crashed, or it was too slow and another one has it."""


class OutboxMachine(RuleBasedStateMachine):
    """Appends, claims, posts, records what became of it, lets time pass, crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.desk = self.runner.run(self._opened())
        self.tasks: list[str] = []
        self.ended: set[str] = set()
        self.held: list[Held] = []
        # What each receiver got, in the order in which it came.
        self.received: dict[tuple[str, str], list[int]] = {}
        self.done: set[tuple[str, str]] = set()

    async def _opened(self) -> OutboxBench:
        return OutboxBench(self.folder / "journal.db")

    def teardown(self) -> None:
        self.runner.run(self._deliver_all())
        for key, got in self.received.items():
            head = self.desk.journal.head(key[0])
            # At least once, none left out, and in order but for what was sent again.
            assert set(got) == set(range(1, head + 1))
            for before, sequence in zip([0, *got], got, strict=False):
                assert sequence <= before + 1
        self.desk.close()
        self.runner.close()
        shutil.rmtree(self.folder)

    async def _deliver_all(self) -> None:
        for task_id in self.tasks:
            if task_id not in self.ended:
                await self.desk.end(task_id)
        while True:
            self.desk.clock.go_on(LONG_S)
            claims = await self.desk.claim()
            if not claims:
                break
            for claim in claims:
                held = self._hold(claim)
                while held.sent_to < held.read_to:
                    self._post(held)
                await self.desk.finished(claim, f"{held.sent_to}.0")
        assert {webhook.state for webhook in self.desk.outbox.list()} <= {DONE}

    @initialize()
    def make_the_first_task(self) -> None:
        self._make_a_task()

    @precondition(lambda self: len(self.tasks) < TASKS)
    @rule()
    def make_another_task(self) -> None:
        self._make_a_task()

    def _make_a_task(self) -> None:
        task_id = self.runner.run(self.desk.new_task(webhooks=WEBHOOKS))
        self.tasks.append(task_id)
        for number in range(WEBHOOKS):
            self.received[task_id, str(number)] = []

    @precondition(lambda self: len(self.ended) < len(self.tasks))
    @rule(data=st.data(), ends=st.booleans())
    def append(self, data: st.DataObject, ends: bool) -> None:
        task_id = data.draw(st.sampled_from([one for one in self.tasks if one not in self.ended]))
        self._write(task_id, ends=ends)

    def _write(self, task_id: str, *, ends: bool) -> None:
        self.runner.run((self.desk.end if ends else self.desk.write)(task_id))
        if ends:
            self.ended.add(task_id)

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        for claim in self.runner.run(self.desk.claim(limit)):
            self._hold(claim)

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        posts=st.integers(0, 3),
        meanwhile=st.sampled_from(["nothing", "more", "end"]),
        outcome=st.sampled_from(["none", "sent", "finished", "finished", "failed"]),
    )
    def deliver(self, data: st.DataObject, posts: int, meanwhile: str, outcome: str) -> None:
        """Post some events, or all; what becomes of it is recorded, or not."""
        held = data.draw(st.sampled_from(self.held))
        if meanwhile != "nothing" and held.key[0] not in self.ended:
            self._write(held.key[0], ends=meanwhile == "end")
        while held.sent_to < held.read_to and self._may_post(held):
            if outcome != "finished" and not posts:
                break
            self._post(held)
            posts -= 1
        if outcome == "sent":
            self._record(held, sent=f"{held.sent_to}.0")
        elif outcome == "finished" and held.sent_to == held.read_to:
            self._record(held, finished=f"{held.sent_to}.0")
        elif outcome == "failed":
            self._record(held, failed="HTTP 503")

    @rule(
        seconds=st.sampled_from([LEASE_S / 2, LEASE_S - 1, LONG_S]),
        crashes=st.sampled_from([False, False, True]),
    )
    def let_time_pass(self, seconds: float, crashes: bool) -> None:
        self.desk.clock.go_on(seconds)
        if crashes:
            self.runner.run(self._crash())

    async def _crash(self) -> None:
        self.desk.crash()
        for held in self.held:
            held.is_lost = True

    def _hold(self, claim: Claim) -> Held:
        webhook = claim.webhook
        key = (webhook.config.task_id, webhook.config.id)
        assert key not in self.done, "nothing is sent behind the end"
        sent_to = int(webhook.cursor.partition(".")[0] or 0)
        for other in self.held:
            if other.key == key:
                assert not self._may_post(other), "two have it at once"
                other.is_lost = True
        held = Held(
            claim=claim,
            key=key,
            read_to=self.desk.journal.head(key[0]),
            sent_to=sent_to,
            until_s=self.desk.clock.now_s + LEASE_S,
        )
        self.held.append(held)
        return held

    def _may_post(self, held: Held) -> bool:
        """A claimant stops by itself when its lease is over, or its host has crashed."""
        return not held.is_lost and self.desk.clock.now_s < held.until_s

    def _post(self, held: Held) -> None:
        held.sent_to += 1
        self.received[held.key].append(held.sent_to)

    def _record(self, held: Held, **outcome: str) -> None:
        request = webhook_service_pb2.RecordDeliveryRequest(claim_id=held.claim.claim_id)
        for name, value in outcome.items():
            setattr(request, name, value)
        try:
            self.runner.run(self.desk.outbox.record(request))
        except FencedError:
            assert not self._may_post(held)
            self.held.remove(held)
            return
        assert not held.is_lost
        if "sent" in outcome:
            held.until_s = self.desk.clock.now_s + LEASE_S
            return
        self.held.remove(held)
        is_at_end = held.read_to == self.desk.journal.head(held.key[0])
        if "finished" in outcome and is_at_end and held.key[0] in self.ended:
            self.done.add(held.key)


def test_whatever_happens_every_event_arrives_in_order_by_one_at_a_time() -> None:
    run_state_machine_as_test(
        OutboxMachine, settings=settings(max_examples=50, stateful_step_count=30)
    )
