"""Messages between agents: handlers, recipients, promises and operations, on real servers."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from pydantic import BaseModel

from harness.mesh.identity import mesh_credentials
from harness.mesh.messages import (
    Attempts,
    MessageMesh,
    Place,
    open_message_mesh,
    plain,
    serve_messages_on,
    texts,
)
from harness.mesh.other_identities import issue
from harness.mesh.processes import free_address
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.remote.measurements import measuring
from trunkline import TaskContext, agent
from trunkline.core.identity import StatementSigner
from trunkline.core.json_values import (
    read_json,
    read_member,
    struct_json,
    update_struct,
    write_json,
)
from trunkline.core.settings import PolicySettings, Settings
from trunkline.core.users import User, current_user
from trunkline.errors import (
    AgentCallError,
    AgentNotFoundError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerTimeoutError,
    PermissionDeniedError,
)
from trunkline.mesh.client import ChannelPool, Directory, allocate_task_id
from trunkline.messages.client import SERVICE, MessagingClient
from trunkline.messages.conversion import build_envelope
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import EnvelopeFilter, StoredEnvelope
from trunkline.messages.types import EvaluationRequest, EvaluationResult, message_type
from trunkline.observe.audit import audit_path, open_audit_log
from trunkline.tasks.messages import MeshMessage, Reply
from trunkline.v1 import envelope_pb2 as pb2
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    part_pb2,
    registry_service_pb2,
    snapshot_pb2,
)


@message_type("count", version=2)
class Count(BaseModel):
    """A number to count to."""

    number: int


@agent(name="teacher", description="Evaluates.")
async def teacher(task: TaskContext) -> str:
    return f"asked: {task.text}"


@teacher.on(EvaluationRequest)
async def evaluate(task: TaskContext, request: EvaluationRequest) -> EvaluationResult:
    return EvaluationResult(approved=len(request.proposal) > 3, proposal=request.proposal, score=90)


@teacher.on(Count)
async def count(task: TaskContext, request: Count) -> AsyncIterator[str]:
    for number in range(1, request.number + 1):
        yield str(number)


@teacher.on("note")
async def note(task: TaskContext, message: MeshMessage) -> None:
    pass


@teacher.on("relay")
async def relay(task: TaskContext, message: MeshMessage) -> Reply:
    assert task.incoming is message
    answer = await task.request("plain", f"from {message.sender}", type="user_message")
    await task.send("user:ann", "note to ann", type="note")
    return Reply(f"relayed: {answer.text}", type="answer", priority="high")


NOTE = build_envelope("1", type="note", recipient="teacher", id="1")


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[MessageMesh]:
    async with open_message_mesh(tmp_path, teacher, plain) as opened:
        yield opened


async def test_a_request_gets_the_typed_reply_of_a_handler(mesh: MessageMesh) -> None:
    request = build_envelope(EvaluationRequest(proposal="a good plan"), recipient="teacher")
    reply = await mesh.client(caller="ann").request(request, timeout_s=PATIENCE_S)
    assert mesh.mesh.directory.messaging_mode() == "local"
    (sent,) = await mesh.listing(type="evaluation_request")
    assert sent.envelope.sender == "user:ann"
    assert (reply.sender, reply.recipient) == ("teacher", "user:ann")
    assert reply.correlation_id == sent.envelope.correlation_id == sent.envelope.envelope_id
    assert reply.causation_id == sent.envelope.envelope_id
    assert struct_json(reply.data) == {
        "approved": True, "proposal": "a good plan", "score": 90.0, "feedback": None,
    }  # fmt: skip
    ended = await mesh.ended(sent.envelope.envelope_id)
    (delivery,) = ended.deliveries
    assert delivery.state == pb2.DELIVERY_STATE_HANDLED
    task = await mesh.mesh.get_task(delivery.attempts[0].task_id)
    assert task.task.context_id == reply.correlation_id


async def test_a_handler_answers_several_times_or_not_at_all(mesh: MessageMesh) -> None:
    client = mesh.client()
    counted, noted = await client.send(
        [
            build_envelope({"number": 3}, type="count", recipient="teacher"),
            build_envelope("x", type="note", recipient="teacher"),
        ]
    )
    await mesh.ended(counted.envelope.envelope_id)
    await mesh.ended(noted.envelope.envelope_id)
    replies = await mesh.listing(causation_id=counted.envelope.envelope_id)
    assert texts(replies) == ["1", "2", "3"]
    assert not await mesh.listing(causation_id=noted.envelope.envelope_id)


async def test_wrong_messages_are_refused_by_field_and_reason(mesh: MessageMesh) -> None:
    client = mesh.client()
    known = pb2.Envelope(recipient="teacher", type="evaluation_request")
    update_struct(known.data, {"proposal": ""})
    with pytest.raises(InvalidArgumentError, match=r"evaluation_request\.proposal: String should"):
        await client.send([known])
    with pytest.raises(InvalidArgumentError, match="does not take 'unknown'; it takes: count@2"):
        await client.send([build_envelope("x", type="unknown", recipient="teacher")])
    with pytest.raises(AgentNotFoundError, match="nobody"):
        await client.send([build_envelope("x", recipient="nobody")])
    with pytest.raises(InvalidArgumentError, match=r"payload: has .* bytes, at most"):
        await client.send([build_envelope("x" * 300_000, recipient="plain")])
    with pytest.raises(InvalidArgumentError, match="room: is missing; `broadcast` goes to a room"):
        await client.send([build_envelope("x", recipient="broadcast")])
    with pytest.raises(InvalidArgumentError, match="correlation_id: must have no NUL"):
        await client.send([build_envelope("x", recipient="plain", correlation_id="a\0b")])
    late = build_envelope("x", recipient="plain", expires_in_s=-1)
    with pytest.raises(InvalidArgumentError, match="expire_time: is in the past"):
        await client.send([build_envelope("x", recipient="plain"), late])
    assert not await mesh.listing()


async def test_all_and_rooms_reach_each_agent_once(mesh: MessageMesh) -> None:
    client = mesh.client(caller="ann")
    (sent,) = await client.send([build_envelope("hello", type="note", recipient="all")])
    assert [each.recipient for each in sent.deliveries] == ["plain", "teacher"]
    own = await mesh.client(agent="plain").send([build_envelope("x", type="note", recipient="all")])
    assert [each.recipient for each in own[0].deliveries] == ["teacher"]

    assert (await client.join("den")).members == ["user:ann"]
    assert (await client.join("den", "teacher")).members == ["teacher", "user:ann"]
    await client.join("den", "teacher")
    with pytest.raises(AgentNotFoundError):
        await client.join("den", "nobody")
    with pytest.raises(PermissionDeniedError):
        await client.join("den", "user:bob")
    for recipient, room in (("room:den", ""), ("broadcast", "den")):
        message = build_envelope("to the den", type="note", recipient=recipient, room=room)
        (sent,) = await client.send([message])
        assert [each.recipient for each in sent.deliveries] == ["teacher"]
    assert (await client.leave("den", "teacher")).members == ["user:ann"]
    assert [room.name for room in await client.list_rooms()] == ["den"]
    # Who comes late reads what there was, with who joined and left.
    history = await mesh.listing(room="den")
    assert [each.envelope.text or read_member(each.envelope.data, "event") for each in history] == [
        "join", "join", "to the den", "to the den", "leave",
    ]  # fmt: skip


async def test_accounts_are_isolated(mesh: MessageMesh) -> None:
    own, other = mesh.client(account="a"), mesh.client(account="b")
    await own.join("den", "teacher")
    (sent,) = await own.send([build_envelope("secret", type="note", recipient="room:den")])
    await mesh.ended(sent.envelope.envelope_id, account="a")
    assert len(sent.deliveries) == 1
    assert not (await other.read_page(EnvelopeFilter())).envelopes
    assert not await other.list_rooms()
    with pytest.raises(Exception, match="no message"):
        await other.get(sent.envelope.envelope_id)
    (same_id,) = await other.send(
        [build_envelope("mine", type="note", recipient="room:den", id=sent.envelope.envelope_id)]
    )
    assert not same_id.deliveries
    assert await other.purge(EnvelopeFilter(room="den")) == 1
    assert (await own.get(sent.envelope.envelope_id)).envelope.text == "secret"


async def test_nobody_can_claim_to_deliver_or_to_answer_a_message(mesh: MessageMesh) -> None:
    forged = pb2.Envelope(sender="boss", recipient="teacher", type="note", text="x")
    metadata = message_pb2.Message(
        message_id="m", role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text="hello")]
    )
    update_struct(metadata.metadata, {"trunkline/envelope": {"sender": "boss", "type": "relay"}})
    answer = await mesh.mesh.client("teacher").send_message(
        agent="teacher", message=metadata, submission=message_service_pb2.Submission()
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    # It is a request as any other.
    assert answer.task.artifacts[0].parts[0].text == "asked: hello"
    (sent,) = await mesh.client(caller="ann").send([forged])
    assert sent.envelope.sender == "user:ann"
    (question,) = await mesh.client(caller="ann").send([build_envelope("?", recipient="plain")])
    wrong = build_envelope("!", recipient="user:ann")
    wrong.is_reply, wrong.causation_id = True, question.envelope.envelope_id
    with pytest.raises(InvalidArgumentError, match="user:bob did not get message"):
        await mesh.client(caller="bob").send([wrong])


async def test_the_policy_says_who_may_message_whom(tmp_path: Path) -> None:
    policy = PolicySettings(callers={"teacher": ("boss",)})
    async with open_message_mesh(tmp_path, teacher, plain, policy=policy) as mesh:
        message = build_envelope("x", type="note", recipient="teacher")
        with pytest.raises(PermissionDeniedError, match=r"policy\.callers\.teacher does not list"):
            await mesh.client(agent="plain").send([message])
        (sent,) = await mesh.client(agent="boss").send([message])
        assert len(sent.deliveries) == 1
        to_all = build_envelope("x", type="note", recipient="all")
        (sent,) = await mesh.client(agent="plain").send([to_all])
        assert not sent.deliveries


async def test_poison_becomes_a_dead_letter_and_is_delivered_again(
    tmp_path: Path, place: Place
) -> None:
    worker = Attempts()
    worker.failures = {"flaky": 2, "poison": 3}
    with measuring() as measured:
        async with open_message_mesh(tmp_path, worker.agent, attempts=3, **place) as mesh:
            client = mesh.client()
            await client.send(
                [
                    build_envelope("flaky", type="job", recipient="worker", id="f"),
                    build_envelope("poison", type="job", recipient="worker", id="p"),
                ]
            )
            (flaky,) = (await mesh.ended("f")).deliveries
            assert (flaky.state, flaky.attempt_count) == (pb2.DELIVERY_STATE_HANDLED, 3)
            (poison,) = (await mesh.ended("p")).deliveries
            assert (poison.state, poison.attempt_count) == (pb2.DELIVERY_STATE_DEAD, 3)
            assert len(poison.attempts) == 3
            failure = "failed: ValueError (at harness.mesh.messages:"
            assert all(failure in each.problem and each.task_id for each in poison.attempts)
            (dead,) = await mesh.listing(states=[pb2.DELIVERY_STATE_DEAD])
            assert dead.envelope.envelope_id == "p"
            assert await client.redrive(EnvelopeFilter(envelope_id="p")) == 1
            (redriven,) = (await mesh.ended("p")).deliveries
            assert (redriven.state, redriven.attempt_count) == (pb2.DELIVERY_STATE_HANDLED, 1)
            assert worker.handled == ["flaky", "poison"]
        assert measured.of("messaging.client.sent.messages")[("trunkline", "send", "job")] == 2
        assert measured.of("trunkline.message.retries") == {("worker",): 4}
        assert measured.of("trunkline.message.deliveries") == {
            ("worker", "handled"): 2,
            ("worker", "dead"): 1,
        }


async def test_a_request_ends_at_once_when_it_was_handled_without_a_reply(
    tmp_path: Path, place: Place
) -> None:
    async with open_message_mesh(tmp_path, teacher, plain, **place) as mesh:
        client = mesh.client(caller="ann")
        quiet = build_envelope("x", type="note", recipient="teacher", id="n")
        unanswered = r"^agent 'teacher' sent no reply: message n was handled$"
        with pytest.raises(AgentCallError, match=unanswered) as raised:
            await client.request(quiet, timeout_s=PATIENCE_S)
        (delivery,) = (await mesh.ended("n")).deliveries
        assert raised.value.state == "completed"
        assert raised.value.task_id == delivery.attempts[-1].task_id
        # Of several recipients, one answers.
        everyone = build_envelope("x", type="note", recipient="all")
        assert (await client.request(everyone, timeout_s=PATIENCE_S)).sender == "plain"
        # A user in the room may answer later.
        await client.join("team", "teacher")
        with pytest.raises(PeerTimeoutError):
            await client.request(
                build_envelope("x", type="note", recipient="room:team", id="r"), timeout_s=0.2
            )
        assert (await mesh.ended("r")).deliveries[0].state == pb2.DELIVERY_STATE_HANDLED


async def test_a_request_ends_with_the_reason_when_nobody_will_answer(
    tmp_path: Path, place: Place
) -> None:
    worker = Attempts()
    worker.failures = {"poison": 2}
    async with open_message_mesh(tmp_path, worker.agent, attempts=2, **place) as mesh:
        poison = build_envelope("poison", type="job", recipient="worker")
        with pytest.raises(AgentCallError, match="agent 'worker' failed: ValueError"):
            await mesh.client().request(poison, timeout_s=PATIENCE_S)
        # Its conversation is no obstacle for the next request in it.
        good = build_envelope(
            "good", type="job", recipient="worker", correlation_id=poison.envelope_id
        )
        assert (await mesh.client().request(good, timeout_s=PATIENCE_S)).text == "did good"


async def test_a_conversation_is_in_order_and_urgent_messages_overtake(
    tmp_path: Path, place: Place
) -> None:
    worker = Attempts()
    worker.gate.clear()
    async with open_message_mesh(tmp_path, worker.agent, concurrency=1, **place) as mesh:
        client = mesh.client()
        jobs = [
            build_envelope(f"a{n}", type="job", recipient="worker", correlation_id="a")
            for n in range(3)
        ]
        low = build_envelope("low", type="job", recipient="worker", priority="low")
        high = build_envelope("high", type="job", recipient="worker", priority="high")
        sent = await client.send([*jobs, low, high])
        worker.gate.set()
        for each in sent:
            await mesh.ended(each.envelope.envelope_id)
        # The first one may have begun before the urgent one came.
        order = [text for text in worker.handled if text != "high"]
        assert order == ["a0", "a1", "a2", "low"]
        assert worker.handled.index("high") <= 1


async def test_messages_expire_and_are_canceled(tmp_path: Path, place: Place) -> None:
    worker = Attempts()
    worker.gate.clear()
    async with open_message_mesh(tmp_path, worker.agent, concurrency=1, **place) as mesh:
        client = mesh.client()
        await client.send([build_envelope("held", type="job", recipient="worker", id="held")])
        soon = build_envelope("late", type="job", recipient="worker", id="late", expires_in_s=0.2)
        await client.send([soon])
        (late,) = (await mesh.ended("late")).deliveries
        assert late.state == pb2.DELIVERY_STATE_EXPIRED
        running = await client.get("held")
        assert running.deliveries[0].state == pb2.DELIVERY_STATE_RUNNING
        task_id = running.deliveries[0].attempts[0].task_id
        await mesh.mesh.directory.client_for_task(task_id).cancel_task(task_id, account="")
        (held,) = (await mesh.ended("held")).deliveries
        assert held.state == pb2.DELIVERY_STATE_CANCELED
        assert not worker.handled


async def test_a_handler_waits_for_a_person_and_lets_others_run(tmp_path: Path) -> None:
    has_begun = asyncio.Event()

    @agent(name="careful", description="Asks first.")
    async def careful(task: TaskContext) -> None:
        raise AssertionError

    @careful.on("job")
    async def job(task: TaskContext, message: MeshMessage) -> str | None:
        has_begun.set()
        if message.payload == "pay" and task.text != "yes":
            await task.require_input("Really?")
            return None
        return f"{message.payload}: {task.text}"

    async with open_message_mesh(tmp_path, careful, concurrency=1) as mesh:
        client = mesh.client()
        await client.send([build_envelope("pay", type="job", recipient="careful", id="pay")])
        await has_begun.wait()
        stored = await client.get("pay")
        task_id = stored.deliveries[0].attempts[0].task_id
        await client.send([build_envelope("other", type="job", recipient="careful", id="other")])
        await mesh.ended("other")
        await mesh.mesh.ask("yes", agent="careful", task_id=task_id)
        await mesh.ended("pay")
        assert texts(await mesh.listing(causation_id="pay")) == ["pay: yes"]


async def test_a_replayed_room_has_its_messages_in_order_without_its_notices(
    mesh: MessageMesh,
) -> None:
    client = mesh.client(caller="ann")
    await client.join("den", "teacher")
    numbers = [f"{number}" for number in range(5)]
    for number in numbers:
        await client.send([build_envelope(number, type="note", recipient="room:den")])
    new = await client.replay(EnvelopeFilter(room="den"))
    replayed = (await mesh.listing(room="den"))[-5:]
    assert texts(replayed) == numbers
    assert [stored.envelope.envelope_id for stored in replayed] == new
    assert all(stored.envelope.replay_of for stored in replayed)
    # A message that can't be sent again stops all: nothing is half done.
    await client.send([build_envelope("x", type="quiet", recipient="user:bob", id="first")])
    with pytest.raises(InvalidArgumentError, match="does not take 'quiet'"):
        await client.replay(EnvelopeFilter(participant="user:ann"), recipient="teacher")
    assert len(await mesh.listing(type="note")) == 10


async def test_an_agent_without_time_costs_no_attempt(tmp_path: Path, place: Place) -> None:
    worker = Attempts()
    worker.gate.clear()
    async with open_small_mesh(tmp_path) as small:
        mesh = MessageMesh(small)
        # The host takes one task at a time, and the service offers it many.
        await small.join(worker.agent, task_limit=1)
        async with serve_messages_on(small, tmp_path, attempts=1, **place):
            sent = await mesh.client().send(
                [build_envelope(f"{n}", type="job", recipient="worker") for n in range(4)]
            )
            worker.gate.set()
            for each in sent:
                (delivery,) = (await mesh.ended(each.envelope.envelope_id)).deliveries
                assert (delivery.state, delivery.attempt_count) == (pb2.DELIVERY_STATE_HANDLED, 1)
    assert sorted(worker.handled) == ["0", "1", "2", "3"]


NOTICES: list[str] = []


class Stamp:
    """A middleware: it completes messages, refuses some, and is broken for others."""

    async def on_send(self, account: str, envelope: pb2.Envelope) -> None:
        if envelope.text == "refused":
            raise InvalidArgumentError("text", "is refused by the house")
        if envelope.text == "broken":
            raise ValueError(envelope.text)
        if envelope.type == "system":
            notice = read_json(envelope.data)
            if envelope.room == "closed":
                raise PermissionDeniedError(notice["member"], "join this room")
            NOTICES.append(f"{account}: {notice['member']} {notice['event']}")
        write_json(envelope.metadata, {"stamp": f"sent in {account}"})

    async def on_receive(self, account: str, recipient: str, envelope: pb2.Envelope) -> None:
        if envelope.text == "unwelcome":
            raise PermissionDeniedError(recipient, "read this")
        metadata = read_json(envelope.metadata)
        metadata["stamp"] += f", received by {recipient}"
        write_json(envelope.metadata, metadata)


async def test_middleware_sees_messages_when_they_are_sent_and_received(tmp_path: Path) -> None:
    stamps: list[object] = []

    @agent(name="reader", description="Reads.")
    async def reader(task: TaskContext) -> None:
        raise AssertionError

    @reader.on("*")
    async def read(task: TaskContext, message: MeshMessage) -> None:
        stamps.append(message.metadata["stamp"])

    names = (f"{__name__}:Stamp",)
    async with open_message_mesh(tmp_path, reader, middleware=names, attempts=1) as mesh:
        client = mesh.client(account="acme")
        await client.send([build_envelope("hello", recipient="reader", id="1")])
        await client.send([build_envelope("unwelcome", recipient="reader", id="2")])
        with pytest.raises(InvalidArgumentError, match="is refused by the house"):
            await client.send([build_envelope("refused", recipient="reader")])
        with pytest.raises(Exception, match="internal error"):
            await client.send([build_envelope("broken", recipient="reader")])
        NOTICES.clear()
        with pytest.raises(PermissionDeniedError, match="join this room"):
            await client.join("closed", "reader")
        for room in ("den", "den"):
            await client.join(room, "reader")
        await client.leave("den", "reader")
        # Only what changes is a message.
        assert NOTICES == ["acme: reader join", "acme: reader leave"]
        assert await client.list_rooms() == []
        await mesh.ended("1", account="acme")
        (dead,) = (await mesh.ended("2", account="acme")).deliveries
    assert stamps == ["sent in acme, received by reader"]
    assert dead.state == pb2.DELIVERY_STATE_DEAD
    assert "read this" in dead.attempts[0].problem


async def test_one_trace_has_the_sends_and_the_handlers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        async with open_message_mesh(tmp_path, teacher, plain) as mesh:
            relayed = build_envelope("go", type="relay", recipient="teacher", id="m")
            await mesh.client().request(relayed, timeout_s=PATIENCE_S)
            await mesh.ended("m")
    spans = {
        (span.name, str((span.attributes or {}).get("messaging.message.id", ""))): span
        for span in memory.get_finished_spans()
    }
    sent, handled = spans["send teacher", "m"], spans["process teacher", "m"]
    assert (sent.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert handled.parent is not None
    assert handled.parent.span_id == sent.context.span_id
    assert sent.attributes is not None
    assert dict(sent.attributes) == {
        "messaging.system": "trunkline",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "teacher",
        "messaging.message.id": "m",
        "messaging.message.conversation_id": "m",
        "trunkline.message.type": "relay",
    }
    # The handler's own message, and its reply, are in the same trace.
    trace_id = sent.context.trace_id
    trace = {name for (name, _), span in spans.items() if span.context.trace_id == trace_id}
    assert trace >= {
        "send plain", "process plain", "send teacher", "send user", "invoke_agent teacher",
    }  # fmt: skip


async def test_acts_on_messages_are_audited(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with (
        open_audit_log(settings, process="mesh") as audit,
        open_message_mesh(tmp_path, plain, audit=audit) as mesh,
    ):
        client = mesh.client(account="acme", caller="ann")
        await client.send([build_envelope("secret words", recipient="plain", id="m")])
        await mesh.ended("m", account="acme")
        await client.join("den")
        await client.leave("den")
        await client.replay(EnvelopeFilter(envelope_id="m"))
        await client.redrive(EnvelopeFilter(envelope_id="m"))
        await client.purge(EnvelopeFilter(room="den"))
        with pytest.raises(InvalidArgumentError):
            await client.send([pb2.Envelope(recipient="plain", envelope_id="bad")])
    text = await asyncio.to_thread(audit_path(settings).read_text)
    acts = [
        (record["action"], record["actor"]["account"], record["outcome"])
        for record in map(json.loads, text.splitlines())
        if record["action"].startswith(("envelope.", "room."))
    ]
    assert acts == [
        ("envelope.send", "acme", "ok"),
        ("room.join", "acme", "ok"),
        ("room.leave", "acme", "ok"),
        ("envelope.replay", "acme", "ok"),
        ("envelope.redrive", "acme", "ok"),
        ("envelope.purge", "acme", "ok"),
        ("envelope.send", "acme", "INVALID_ARGUMENT"),
    ]
    assert "secret words" not in text


async def test_a_process_that_joined_sends_as_its_own_agents_only(tmp_path: Path) -> None:
    """Its certificate says which agents it serves; it can neither deliver nor name others."""
    credentials = await asyncio.to_thread(issue, tmp_path, agents=["spy"])
    user = User("acme", "ann")
    statement = await StatementSigner(mesh_credentials()).sign(user)
    async with (
        open_message_mesh(tmp_path / "mesh", teacher) as mesh,
        ChannelPool(credentials) as channels,
        Directory(channels, mesh.mesh.registry_address) as directory,
    ):
        await directory.wait_until(lambda known: "teacher" in known.list_agents(), timeout_s=60)
        note = build_envelope("x", type="note", recipient="teacher")
        current_user.set(replace(user, statement=statement))
        spy = MessagingClient(directory, account="acme", agent="spy", caller="boss")
        (sent,) = await spy.send([note])
        # It works for the user of the statement, whomever it names.
        assert (sent.envelope.sender, sent.caller) == ("spy", "ann")
        for claimed in ("teacher", ""):
            forger = MessagingClient(directory, account="acme", agent=claimed)
            with pytest.raises(PermissionDeniedError):
                await forger.send([note])
        with pytest.raises(PermissionDeniedError):
            await spy.join("den", "teacher")
        other = MessagingClient(directory, account="other", agent="spy")
        with pytest.raises(PermissionDeniedError, match="act for account 'other'"):
            await other.read_page(EnvelopeFilter())
        note.sender = "boss"
        task_id = allocate_task_id(directory.choose_host("teacher"))
        forged = message_service_pb2.DeliverMessagesRequest(
            agent="teacher",
            account="acme",
            deliveries=[message_service_pb2.MessageDelivery(task_id=task_id, envelope=note)],
        )
        with pytest.raises(PermissionDeniedError, match="deliver messages between agents"):
            await anext(
                aiter(directory.client_for_agent("teacher").messages.DeliverMessages(forged))
            )


async def watch_first(client: MessagingClient) -> StoredEnvelope:
    async with aclosing(client.watch(EnvelopeFilter(), after_position=0)) as updates:
        return (await anext(updates)).envelopes[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.send([NOTE]),
        lambda client: client.get("1"),
        lambda client: client.list_rooms(),
        watch_first,
    ],
)
async def test_a_call_goes_to_another_process_when_one_has_died(
    mesh: MessageMesh, call: Callable[[MessagingClient], Awaitable[object]]
) -> None:
    client = mesh.client()
    await client.send([NOTE])
    await client.join("den", "plain")
    # The newest process is called first, and is on the mesh until its lease ends.
    died = registry_service_pb2.Host(host_id="died", address=free_address(), services=[SERVICE])
    await mesh.mesh.registry.register(died)
    await mesh.mesh.directory.wait_until(
        lambda known: known.hosts[-1].host_id == "died", timeout_s=PATIENCE_S
    )
    assert await call(client)


@pytest.mark.parametrize("sender", ["", "teacher"])
async def test_a_task_that_sends_waits_for_the_store_and_a_user_does_not(
    mesh: MessageMesh, sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = SqliteMessageStore.accept
    calls = itertools.count()

    async def refuse_two(*args: Any, **options: Any) -> object:
        if next(calls) < 2:
            raise JournalUnavailableError("messages", "the disk is full")
        return await accept(*args, **options)

    monkeypatch.setattr(SqliteMessageStore, "accept", refuse_two)
    client = mesh.client(agent=sender)
    with nullcontext() if sender else pytest.raises(JournalUnavailableError):
        await client.send([NOTE])
    assert next(calls) == (3 if sender else 1)
