"""The mesh notifies the sender of a dead letter, and drops replies that it can't send."""

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.mesh.messages import Attempts, Place, open_message_mesh, plain
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S
from trunkline import TaskContext, agent
from trunkline.errors import PermissionDeniedError
from trunkline.messages.conversion import build_envelope
from trunkline.messages.store import EnvelopeFilter
from trunkline.messages.types import SystemMessage
from trunkline.tasks.messages import MeshMessage
from trunkline.v1 import envelope_pb2 as pb2


class Boss:
    """An agent whose handler sends a job; it notes the notices that it gets, and may fail then."""

    def __init__(self) -> None:
        self.notices: list[tuple[SystemMessage, MeshMessage]] = []
        self.fails = False

        @agent(name="boss", description="Sends jobs.")
        async def boss(task: TaskContext) -> None:
            raise AssertionError

        @boss.on("start")
        async def start(task: TaskContext, message: MeshMessage) -> None:
            await task.send("worker", str(message.payload), type="job")

        @boss.on(SystemMessage)
        async def hear(task: TaskContext, notice: SystemMessage) -> None:
            assert task.incoming is not None
            self.notices.append((notice, task.incoming))
            if self.fails:
                raise ValueError(notice.text)

        self.agent = boss


async def test_a_dead_letter_tells_the_agent_that_sent_it_once(
    tmp_path: Path, place: Place
) -> None:
    worker, boss = Attempts(), Boss()
    worker.failures = {"poison": 99}
    async with open_message_mesh(
        tmp_path, worker.agent, boss.agent, plain, attempts=2, **place
    ) as mesh:
        client = mesh.client()
        await client.send([build_envelope("poison", type="start", recipient="boss", id="s")])
        notification = await mesh.until(lambda each: bool(each.deliveries), type="system")
        await mesh.ended(notification.envelope.envelope_id)
        ((notice, incoming),) = boss.notices
        (job,) = await mesh.listing(type="job")
        problem = job.deliveries[0].attempts[-1].problem
        assert (notice.event, notice.member, notice.text) == ("error", "worker", problem)
        assert (incoming.causation_id, incoming.correlation_id) == (job.envelope.envelope_id, "s")
        assert incoming.sender == "system:mesh"

        # The dead letter of a notice makes no further notice.
        boss.fails = True
        assert await client.redrive(EnvelopeFilter(type="job")) == 1
        await mesh.until(
            lambda each: each.deliveries[0].state == pb2.DELIVERY_STATE_DEAD, type="system"
        )
        dead = await mesh.listing(states=[pb2.DELIVERY_STATE_DEAD])
        assert [each.envelope.type for each in dead] == ["job", "system"]
        assert len(await mesh.listing(type="system")) == 2

        # Users, and agents without a handler for notices, get nothing.
        for sender, name in ((mesh.client(agent="plain"), "p"), (client, "u")):
            await sender.send([build_envelope("poison", type="job", recipient="worker", id=name)])
            await mesh.ended(name)
        assert len(await mesh.listing(type="system")) == 2


async def test_an_agent_that_comes_back_without_a_handler_gets_no_notice(tmp_path: Path) -> None:
    worker, boss = Attempts(), Boss()
    worker.failures = {"poison": 1}
    worker.gate.clear()

    @agent(name="boss", description="Has no handlers.")
    async def silent(task: TaskContext) -> None:
        raise AssertionError

    async with open_message_mesh(tmp_path, worker.agent, attempts=1) as mesh:
        host = await mesh.mesh.join(boss.agent)
        await mesh.client().send([build_envelope("poison", type="start", recipient="boss")])
        await worker.has_begun.wait()
        host.withdraw_agents()
        await mesh.mesh.directory.wait_until(
            lambda known: "boss" not in known.list_agents(), timeout_s=PATIENCE_S
        )
        worker.gate.set()
        notification = await mesh.until(lambda each: bool(each.deliveries), type="system")
        assert notification.deliveries[0].state == pb2.DELIVERY_STATE_PENDING
        await mesh.mesh.join(silent)
        (ended,) = (await mesh.ended(notification.envelope.envelope_id)).deliveries
        assert ended.state == pb2.DELIVERY_STATE_CANCELED


async def test_a_reply_whose_id_was_used_before_is_dropped(tmp_path: Path) -> None:
    async with open_message_mesh(tmp_path, plain) as mesh:
        client = mesh.client()
        await client.send([build_envelope("x", recipient="user:ann", type="note", id="m.plain.1")])
        await client.send([build_envelope("x", recipient="plain", id="m")])
        (delivery,) = (await mesh.ended("m")).deliveries
        assert delivery.state == pb2.DELIVERY_STATE_HANDLED
        assert "a reply was dropped" in delivery.attempts[-1].problem
        reply = await client.request(build_envelope("x", recipient="plain"), timeout_s=PATIENCE_S)
        assert reply.text == "plain heard 'x'"


async def test_the_span_of_an_attempt_has_a_link_to_the_attempt_before_it(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Attempts()
    worker.failures = {"poison": 2}
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        async with open_message_mesh(tmp_path, worker.agent, attempts=2, **place) as mesh:
            client = mesh.client()
            await client.send([build_envelope("poison", type="job", recipient="worker", id="p")])
            assert (await mesh.ended("p")).deliveries[0].state == pb2.DELIVERY_STATE_DEAD
            assert await client.redrive(EnvelopeFilter(envelope_id="p")) == 1
            assert (await mesh.ended("p")).deliveries[0].state == pb2.DELIVERY_STATE_HANDLED
    spans = sorted(memory.get_finished_spans(), key=lambda span: span.start_time or 0)
    first, retried, redriven = (span for span in spans if span.name == "process worker")
    links = [[link.context.span_id for link in span.links] for span in (first, retried, redriven)]
    assert links == [[], [first.context.span_id], [retried.context.span_id]]
    # A delivery that is made again is its first attempt again.
    resends = [(span.attributes or {}).get("trunkline.message.resend_count") for span in spans]
    assert [count for count in resends if count is not None] == [1]
    assert {span.context.trace_id for span in (first, retried, redriven)} == {
        first.context.trace_id
    }


class Refuse:
    """A middleware that lets no message through."""

    async def on_send(self, account: str, envelope: pb2.Envelope) -> None:
        pass

    async def on_receive(self, account: str, recipient: str, envelope: pb2.Envelope) -> None:
        raise PermissionDeniedError(recipient, "read this")


async def test_a_message_that_was_refused_has_a_link_after_redrive_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (f"{__name__}:Refuse",)
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        async with open_message_mesh(tmp_path, Attempts().agent, middleware=names) as mesh:
            client = mesh.client()
            await client.send([build_envelope("x", type="job", recipient="worker", id="p")])
            await mesh.ended("p")
            assert await client.redrive(EnvelopeFilter(envelope_id="p")) == 1
            dead = (await mesh.ended("p")).deliveries[0]
            assert (dead.state, len(dead.attempts)) == (pb2.DELIVERY_STATE_DEAD, 2)
    first, again = (span for span in memory.get_finished_spans() if span.name == "process worker")
    assert [link.context.span_id for link in again.links] == [first.context.span_id]
