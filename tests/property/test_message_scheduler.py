"""The order of deliveries: one at a time in a conversation, within limits, without starvation."""

import weakref
from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trunkline.messages.scheduler import ALLOWANCE_S, Scheduler
from trunkline.messages.store import DeliveryKey, Envelope, QueuedDelivery
from trunkline.v1 import envelope_pb2 as pb2

PRIORITIES = (pb2.ENVELOPE_PRIORITY_LOW, pb2.ENVELOPE_PRIORITY_NORMAL, pb2.ENVELOPE_PRIORITY_HIGH)


def delivery(
    position: int,
    *,
    recipient: str = "a",
    correlation: str = "",
    priority: pb2.EnvelopePriority.ValueType = pb2.ENVELOPE_PRIORITY_NORMAL,
    at: float = 0.0,
    expires: float | None = None,
    task_id: str = "",
) -> QueuedDelivery:
    envelope = Envelope(
        envelope_id=f"{position}", correlation_id=correlation or f"{position}", priority=priority
    )
    envelope.create_time.FromNanoseconds(int(at * 1e9))
    if expires is not None:
        envelope.expire_time.FromNanoseconds(int(expires * 1e9))
    key = DeliveryKey("", envelope.envelope_id, recipient)
    return QueuedDelivery(key, position, envelope, task_id=task_id)


class SchedulerMachine(RuleBasedStateMachine):
    """A scheduler beside a list of what was added."""

    @initialize(per_recipient=st.integers(1, 3), total=st.integers(1, 4))
    def open(self, per_recipient: int, total: int) -> None:
        self.limits = (per_recipient, total)
        self.scheduler = Scheduler(per_recipient=per_recipient, total=total)
        self.now = 0.0
        self.position = 0
        self.waiting: dict[tuple[str, str], list[QueuedDelivery]] = defaultdict(list)
        self.running: dict[tuple[str, str], QueuedDelivery] = {}
        self.released: set[tuple[str, str]] = set()
        self.away = ""

    @rule(
        recipient=st.sampled_from("ab"),
        correlation=st.sampled_from("xyz"),
        priority=st.sampled_from(PRIORITIES),
        life_s=st.none() | st.integers(1, 50),
    )
    def add(
        self,
        recipient: str,
        correlation: str,
        priority: pb2.EnvelopePriority.ValueType,
        life_s: int | None,
    ) -> None:
        self.position += 1
        added = delivery(
            self.position,
            recipient=recipient,
            correlation=correlation,
            priority=priority,
            at=self.now,
            expires=None if life_s is None else self.now + life_s,
        )
        self.scheduler.add([added])
        self.waiting[recipient, correlation].append(added)

    @rule()
    def take(self) -> None:
        taken = self.scheduler.take(self.now, is_available=lambda name: name != self.away)
        if taken is None:
            return
        key = (taken.key.recipient, taken.envelope.correlation_id)
        assert taken.key.recipient != self.away
        assert key not in self.running
        first = self.waiting[key][0]
        assert (taken.key, taken.not_before <= self.now) == (first.key, True)
        self.running[key] = taken

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.running:
            key = data.draw(st.sampled_from(sorted(self.running)))
            self.scheduler.end(self.running.pop(key))
            self.waiting[key].pop(0)
            self.released.discard(key)

    @rule(data=st.data(), pause_s=st.integers(0, 20))
    def postpone(self, data: st.DataObject, pause_s: int) -> None:
        if self.running:
            key = data.draw(st.sampled_from(sorted(self.running)))
            postponed = replace(self.running.pop(key), not_before=self.now + pause_s)
            self.scheduler.postpone(postponed)
            self.waiting[key][0] = postponed
            self.released.discard(key)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.running:
            key = data.draw(st.sampled_from(sorted(self.running)))
            self.scheduler.release(self.running[key])
            self.released.add(key)

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        expired = {each.key for each in self.scheduler.take_expired(self.now)}
        for key, waiting in self.waiting.items():
            free = waiting[1:] if key in self.running else list(waiting)
            expected = {
                each.key
                for each in free
                if each.envelope.HasField("expire_time")
                and each.envelope.expire_time.ToNanoseconds() <= self.now * 1e9
            }
            assert expected <= expired
            waiting[:] = [each for each in waiting if each.key not in expected]
            expired -= expected
        assert not expired

    @rule(recipient=st.sampled_from(["", "a", "b"]))
    def leave(self, recipient: str) -> None:
        self.away = recipient

    @rule()
    def finish(self) -> None:
        """Everything is delivered in the end, each conversation in its order."""
        self.away = ""
        self.now += 100
        self.wait(1)
        while any(self.waiting.values()):
            before = len(self.running)
            self.take()
            if len(self.running) == before:
                assert self.running, "nothing runs, and nothing can be taken"
                key = min(self.running)
                self.scheduler.end(self.running.pop(key))
                self.waiting[key].pop(0)
                self.released.discard(key)
        assert self.scheduler.waiting == self.scheduler.running == 0
        assert self.scheduler.take(self.now) is None
        assert self.scheduler.next_time() is None

    @invariant()
    def limits_hold(self) -> None:
        slots = [key for key in self.running if key not in self.released]
        assert self.scheduler.running == len(slots) <= self.limits[1]
        for name in "ab":
            assert sum(key[0] == name for key in slots) <= self.limits[0]
        waiting = sum(map(len, self.waiting.values())) - len(self.running)
        assert self.scheduler.waiting == waiting


TestScheduler = SchedulerMachine.TestCase


@given(
    st.lists(st.tuples(st.sampled_from(PRIORITIES), st.floats(0, 1_000)), min_size=2, max_size=40)
)
def test_nobody_is_overtaken_for_longer_than_the_allowance(
    messages: list[tuple[pb2.EnvelopePriority.ValueType, float]],
) -> None:
    scheduler = Scheduler(per_recipient=1, total=1)
    scheduler.add(
        delivery(position, priority=priority, at=at)
        for position, (priority, at) in enumerate(messages)
    )
    taken: list[QueuedDelivery] = []
    while each := scheduler.take(2_000.0):
        taken.append(each)
        scheduler.end(each)
    assert len(taken) == len(messages)
    created = [each.envelope.create_time.ToNanoseconds() / 1e9 for each in taken]
    for index, each in enumerate(taken):
        allowance_s = ALLOWANCE_S[each.envelope.priority]
        for earlier in range(index):
            assert created[earlier] - created[index] <= allowance_s + 1e-6


def test_an_attempt_that_was_begun_is_not_expired_but_run() -> None:
    scheduler = Scheduler(per_recipient=1, total=1)
    begun = delivery(1, expires=5.0, task_id="task")
    scheduler.add([begun])
    assert scheduler.take_expired(10.0) == []
    assert scheduler.take(10.0) == begun
    # It failed: now it has expired.
    scheduler.postpone(replace(begun, task_id="", not_before=11.0))
    assert [each.key for each in scheduler.take_expired(10.5)] == [begun.key]


class Name(str):
    """A text of which the test sees whether an object still has it."""


def test_expiries_of_what_has_ended_are_forgotten() -> None:
    scheduler = Scheduler(per_recipient=1, total=1)
    names: list[weakref.ref[Name]] = []
    for position in range(500):
        name = Name("a")
        names.append(weakref.ref(name))
        scheduler.add([delivery(position, recipient=name, expires=1e9)])
        taken = scheduler.take(0.0)
        assert taken is not None
        scheduler.end(taken)
    del name, taken
    assert sum(known() is not None for known in names) < 100
    assert scheduler.next_time() is None
