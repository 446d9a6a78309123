"""`trunkline messages`: sends messages between agents, lists, follows and repeats them."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import MeshView, open_mesh_view
from trunkline.cli.terminal import paint_state, print_json, print_stderr, print_table
from trunkline.cli.times import expiry_cell, parse_since, time_cell
from trunkline.errors import InvalidArgumentError
from trunkline.json_values import has_member, message_to_dict, struct_json
from trunkline.messaging.client import MessagingClient
from trunkline.messaging.conversion import build_envelope
from trunkline.messaging.types import load_type_plugins
from trunkline.printable import remove_controls
from trunkline.task_states import OUTCOME_KEY
from trunkline.tasks.messages import Payload, Priority
from trunkline.v1 import envelope_pb2, messaging_service_pb2

_PREFIX: Final = "DELIVERY_STATE_"
STATES: Final[Mapping[str, envelope_pb2.DeliveryState.ValueType]] = {
    name.removeprefix(_PREFIX).lower(): value
    for name, value in envelope_pb2.DeliveryState.items()
    if value != envelope_pb2.DELIVERY_STATE_UNSPECIFIED
}
_PRIORITIES: Final = ("low", "normal", "high")
_PAGE_SIZE: Final = 1000
# A message without deliveries: users read it in its room.
STORED: Final = "stored"

# The page has the same words.
MESSAGE_TITLES: Final = ("MESSAGE", "FROM", "TO", "STATE", "SENT", "TYPE")
DEAD_LETTER_TITLES: Final = ("MESSAGE", "RECIPIENT", "ATTEMPTS", "SINCE", "REASON")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """Selects the messages of an account. Empty values match all."""

    account: str
    room: str = ""
    type: str = ""
    correlation_id: str = ""
    envelope_id: str = ""
    participant: str = ""
    recipient: str = ""
    state: str = ""
    since: str = ""
    until: str = ""

    def build_filter(self) -> messaging_service_pb2.EnvelopeFilter:
        """Return the filter of the messaging service.

        Raises:
            InvalidArgumentError: there is no such state, or a time is none.
        """
        query = messaging_service_pb2.EnvelopeFilter(
            room=self.room,
            type=self.type,
            correlation_id=self.correlation_id,
            envelope_id=self.envelope_id,
            participant=self.participant,
            recipient=self.recipient,
        )
        if self.state:
            if self.state not in STATES:
                problem = f"no such state; there are: {', '.join(STATES)}"
                raise InvalidArgumentError("--state", problem)
            query.states.append(STATES[self.state])
        if self.since:
            query.start_time.FromDatetime(parse_since(self.since))
        if self.until:
            query.end_time.FromDatetime(parse_since(self.until))
        return query


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, as the user wrote it."""

    recipient: str
    text: str
    """"-": read it from stdin."""
    type: str = ""
    room: str = ""
    priority: str = "normal"
    correlation_id: str = ""
    id: str = ""
    expires_in_s: float | None = None
    account: str = ""
    user: str = ""

    def build(self) -> envelope_pb2.Envelope:
        """Return the message.

        Raises:
            InvalidArgumentError: it does not fit its type, or there is no such priority.
        """
        if self.priority not in _PRIORITIES:
            problem = f"no such priority; there are: {', '.join(_PRIORITIES)}"
            raise InvalidArgumentError("--priority", problem)
        text = sys.stdin.read() if self.text == "-" else self.text
        return build_envelope(
            _read_payload(text) if self.type else text,
            recipient=self.recipient,
            type=self.type,
            room=self.room,
            priority=cast("Priority", self.priority),
            expires_in_s=self.expires_in_s,
            id=self.id,
            correlation_id=self.correlation_id,
        )


def open_client(view: MeshView, account: str, user: str = "") -> MessagingClient:
    """Return a client of the messaging service of a mesh."""
    return MessagingClient(view, account=account, caller=user)


async def list_messages(
    mesh: str | None, query: MessageQuery, *, limit: int, as_json: bool
) -> ExitCode:
    """Print messages, newest first."""
    found = await _read(mesh, query, limit=limit)
    if as_json:
        print_json([to_fields(stored) for stored in found])
        return ExitCode.OK
    print_messages(found)
    return ExitCode.OK


def print_messages(found: Iterable[envelope_pb2.StoredEnvelope]) -> None:
    """Print messages as a table. A terminal without room for their ids shows less."""
    rows = [
        (
            stored.envelope.envelope_id,
            stored.envelope.sender,
            stored.envelope.recipient,
            _state_cell(stored),
            time_cell(stored.envelope.create_time),
            stored.envelope.type,
        )
        for stored in found
    ]
    print_table(MESSAGE_TITLES, rows, optional=("TYPE", "SENT"), empty="no messages")


async def list_dead_letters(
    mesh: str | None, query: MessageQuery, *, limit: int, as_json: bool
) -> ExitCode:
    """Print dead letters, each with the reason of its last attempt."""
    found = await _read(mesh, query, limit=limit)
    dead = [
        (stored, delivery)
        for stored in found
        for delivery in stored.deliveries
        if delivery.state == envelope_pb2.DELIVERY_STATE_DEAD
    ]
    if as_json:
        print_json(
            [
                {
                    "envelope_id": stored.envelope.envelope_id,
                    "type": stored.envelope.type,
                    "sender": stored.envelope.sender,
                    "recipient": delivery.recipient,
                    "attempts": delivery.attempt_count,
                    "problem": _last_problem(delivery),
                    "update_time": delivery.update_time.ToJsonString(),
                }
                for stored, delivery in dead
            ]
        )
        return ExitCode.OK
    rows = [
        (
            stored.envelope.envelope_id,
            delivery.recipient,
            str(delivery.attempt_count),
            time_cell(delivery.update_time),
            _last_problem(delivery),
        )
        for stored, delivery in dead
    ]
    print_table(DEAD_LETTER_TITLES, rows, empty="no dead letters")
    return ExitCode.OK


async def show_message(
    message_id: str, mesh: str | None, *, account: str, as_json: bool
) -> ExitCode:
    """Print a message with its deliveries.

    Raises:
        EnvelopeNotFoundError: the account has none with this id.
    """
    async with open_mesh_view(mesh) as view:
        stored = await open_client(view, account).get(message_id)
    if as_json:
        print_json(to_fields(stored))
    else:
        print("\n".join(_describe(stored)))
    return ExitCode.OK


async def send_message(message: Outgoing, mesh: str | None, *, as_json: bool) -> ExitCode:
    """Send a message and print its id.

    Raises:
        InvalidArgumentError: it is wrong, or there is no such recipient.
        OverloadedError: too many messages wait.
    """
    load_type_plugins()
    envelope = message.build()
    async with open_mesh_view(mesh, is_traced=True) as view:
        (stored,) = await open_client(view, message.account, message.user).send([envelope])
    if as_json:
        print_json(to_fields(stored))
    else:
        to = ", ".join(delivery.recipient for delivery in stored.deliveries)
        print(f"{stored.envelope.envelope_id}  to {to or 'no recipient yet'}")
    return ExitCode.OK


async def request_reply(
    message: Outgoing, mesh: str | None, *, timeout_s: float, as_json: bool
) -> ExitCode:
    """Send a message and print the first reply.

    Raises:
        PeerTimeoutError: there is none in time.
        As `send_message`.
    """
    load_type_plugins()
    envelope = message.build()
    async with open_mesh_view(mesh, is_traced=True) as view:
        client = open_client(view, message.account, message.user)
        reply = await client.request(envelope, timeout_s=timeout_s)
    if as_json:
        print_json(_envelope_fields(reply))
    else:
        print(remove_controls(payload_text(reply)))
    is_partial = has_member(reply.metadata, OUTCOME_KEY)
    return ExitCode.PARTIAL if is_partial else ExitCode.OK


async def follow_messages(
    mesh: str | None,
    query: MessageQuery,
    *,
    after: int | None,
    with_deliveries: bool,
    as_json: bool,
) -> ExitCode:
    """Print messages as they are accepted, a line each, until Ctrl-C."""
    async with open_mesh_view(mesh) as view:
        watch = open_client(view, query.account).watch(
            query.build_filter(), after_position=after, with_deliveries=with_deliveries
        )
        async with aclosing(watch) as updates:
            async for update in updates:
                for stored in update.envelopes:
                    if as_json:
                        print_json(to_fields(stored))
                    else:
                        print(_follow_line(stored, with_state=with_deliveries), flush=True)
    return ExitCode.OK


async def replay_messages(
    mesh: str | None, query: MessageQuery, *, recipient: str, dry_run: bool, as_json: bool
) -> ExitCode:
    """Send messages again; print their ids.

    Raises:
        InvalidArgumentError: there is no condition, or too many messages match.
    """
    async with open_mesh_view(mesh, is_traced=not dry_run) as view:
        client = open_client(view, query.account)
        ids = await client.replay(query.build_filter(), recipient=recipient, dry_run=dry_run)
    if as_json:
        print_json({"envelope_ids": ids, "dry_run": dry_run})
        return ExitCode.OK
    for message_id in ids:
        print(message_id)
    print_stderr(f"{len(ids)} {'would be sent' if dry_run else 'sent'} again")
    return ExitCode.OK


async def redrive_messages(mesh: str | None, query: MessageQuery, *, as_json: bool) -> ExitCode:
    """Deliver dead letters again; print their number.

    Raises:
        InvalidArgumentError: the message of the query is no dead letter.
    """
    async with open_mesh_view(mesh, is_traced=True) as view:
        count = await open_client(view, query.account).redrive(query.build_filter())
    if query.envelope_id and not count:
        problem = f"{query.envelope_id!r} is no dead letter; `trunkline messages dead` lists them"
        raise InvalidArgumentError("ID", problem)
    if as_json:
        print_json({"deliveries": count})
    else:
        print(f"{count} delivered again")
    return ExitCode.OK


async def purge_messages(mesh: str | None, query: MessageQuery, *, as_json: bool) -> ExitCode:
    """Delete messages whose deliveries have ended; print their number.

    Raises:
        InvalidArgumentError: there is no condition.
    """
    async with open_mesh_view(mesh, is_traced=True) as view:
        count = await open_client(view, query.account).purge(query.build_filter())
    if as_json:
        print_json({"envelopes": count})
    else:
        print(f"{count} deleted")
    return ExitCode.OK


def to_fields(stored: envelope_pb2.StoredEnvelope) -> dict[str, Any]:
    """Return a message as JSON, with the names of the contract."""
    fields = message_to_dict(stored, with_proto_names=True)
    fields["envelope"] = _envelope_fields(stored.envelope)
    return fields


def payload_text(envelope: envelope_pb2.Envelope) -> str:
    """Return the payload of a message as a text: JSON on one line for fields."""
    if envelope.WhichOneof("payload") != "data":
        return envelope.text
    return json.dumps(struct_json(envelope.data), ensure_ascii=False)


def _envelope_fields(envelope: envelope_pb2.Envelope) -> dict[str, Any]:
    return message_to_dict(envelope, with_proto_names=True)


async def _read(
    mesh: str | None, query: MessageQuery, *, limit: int
) -> Sequence[envelope_pb2.StoredEnvelope]:
    """Return messages, newest first."""
    found: list[envelope_pb2.StoredEnvelope] = []
    token = ""
    async with open_mesh_view(mesh) as view:
        client = open_client(view, query.account)
        while len(found) < limit:
            size = min(_PAGE_SIZE, limit - len(found))
            page = await client.read_page(query.build_filter(), page_size=size, page_token=token)
            found += page.envelopes
            token = page.next_page_token
            if not token:
                break
    return found


def _read_payload(text: str) -> Payload:
    """Return the fields in a JSON object, or the text."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError("PAYLOAD", f"is not JSON: {error}") from None
    return cast("Mapping[str, Any]", fields)


def _state_name(state: envelope_pb2.DeliveryState.ValueType) -> str:
    return envelope_pb2.DeliveryState.Name(state).removeprefix(_PREFIX).lower()


def _state_cell(stored: envelope_pb2.StoredEnvelope) -> str:
    """Return the state of a message's deliveries; if they differ, each with its number."""
    names = [_state_name(delivery.state) for delivery in stored.deliveries]
    counts = {name: names.count(name) for name in names}
    if len(counts) < 2:
        return next(iter(counts), STORED)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _last_problem(delivery: envelope_pb2.Delivery) -> str:
    return next((a.problem for a in reversed(delivery.attempts) if a.problem), "")


def _describe(stored: envelope_pb2.StoredEnvelope) -> list[str]:
    envelope = stored.envelope
    priority = envelope_pb2.EnvelopePriority.Name(envelope.priority)
    rows = {
        "message": envelope.envelope_id,
        "type": envelope.type,
        "from": envelope.sender,
        "to": envelope.recipient,
        "room": envelope.room,
        "answers": envelope.causation_id,
        "conversation": envelope.correlation_id,
        "repeats": envelope.replay_of,
        "priority": priority.removeprefix("ENVELOPE_PRIORITY_").lower(),
        "sent": time_cell(envelope.create_time),
        "expires": expiry_cell(envelope.expire_time),
        "position": str(stored.position),
        "payload": payload_text(envelope),
    }
    lines = [
        f"{name:<13} {remove_controls(text)}"
        for name, text in rows.items()
        if text and text != "unspecified"
    ]
    for delivery in stored.deliveries:
        state = paint_state(_state_name(delivery.state), sys.stdout)
        lines.append(f"{'delivery':<13} {delivery.recipient}  {state}")
        for attempt in delivery.attempts:
            problem = f"  {remove_controls(attempt.problem)}" if attempt.problem else ""
            lines.append(f"{'':<13}   task {attempt.task_id}{problem}")
    return lines


def _follow_line(stored: envelope_pb2.StoredEnvelope, *, with_state: bool) -> str:
    envelope = stored.envelope
    time = envelope.create_time.ToDatetime().strftime("%H:%M:%S")
    way = f"{envelope.sender} > {envelope.recipient}"
    state = _state_cell(stored) if with_state else ""
    shown = f"  {paint_state(state, sys.stdout)}" if state else ""
    text = " ".join(remove_controls(payload_text(envelope)).split())
    return f"{time}  {remove_controls(way)}  {envelope.type}{shown}  {text}"
