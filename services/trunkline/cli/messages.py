"""Messages between agents and rooms, as commands read, build and show them."""

import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.options import MeshCall
from trunkline.cli.terminal import paint_state, print_json, print_list
from trunkline.cli.times import expiry_cell, time_cell
from trunkline.core.json_values import message_to_dict, struct_json
from trunkline.core.printable import remove_controls
from trunkline.errors import InvalidArgumentError
from trunkline.messages.client import MessagingClient
from trunkline.messages.conversion import build_envelope
from trunkline.messages.types import load_type_plugins
from trunkline.tasks.messages import Payload, Priority
from trunkline.v1 import envelope_pb2, messaging_service_pb2

_PREFIX: Final = "DELIVERY_STATE_"
STATES: Final[Mapping[str, envelope_pb2.DeliveryState.ValueType]] = {
    name.removeprefix(_PREFIX).lower(): value
    for name, value in envelope_pb2.DeliveryState.items()
    if value != envelope_pb2.DELIVERY_STATE_UNSPECIFIED
}
PRIORITIES: Final = ("low", "normal", "high")
_PAGE_SIZE: Final = 1000
# A message without deliveries: users read it in its room.
STORED: Final = "stored"


Stored: TypeAlias = envelope_pb2.StoredEnvelope


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A delivery of a message that was given up."""

    envelope: envelope_pb2.Envelope
    delivery: envelope_pb2.Delivery

    @property
    def problem(self) -> str:
        """The reason of the last attempt that has one."""
        attempts = reversed(self.delivery.attempts)
        return next((attempt.problem for attempt in attempts if attempt.problem), "")


# The columns of the tables. The page has the same words.
MESSAGE_COLUMNS: Final[Mapping[str, Callable[[Stored], str]]] = {
    "MESSAGE": lambda stored: stored.envelope.envelope_id,
    "FROM": lambda stored: stored.envelope.sender,
    "TO": lambda stored: stored.envelope.recipient,
    "STATE": lambda stored: _state_cell(stored),
    "SENT": lambda stored: time_cell(stored.envelope.create_time),
    "TYPE": lambda stored: stored.envelope.type,
}
DEAD_LETTER_COLUMNS: Final[Mapping[str, Callable[[DeadLetter], object]]] = {
    "MESSAGE": lambda dead: dead.envelope.envelope_id,
    "RECIPIENT": lambda dead: dead.delivery.recipient,
    "ATTEMPTS": lambda dead: dead.delivery.attempt_count,
    "SINCE": lambda dead: time_cell(dead.delivery.update_time),
    "REASON": lambda dead: dead.problem,
}
ROOM_COLUMNS: Final[Mapping[str, Callable[[messaging_service_pb2.Room], object]]] = {
    "ROOM": lambda room: room.name,
    "MEMBERS": lambda room: len(room.members),
    "SINCE": lambda room: time_cell(room.create_time),
    "WHO": lambda room: ", ".join(room.members),
}


def build_message(
    text: str,
    *,
    priority: str,
    **fields: Any,  # noqa: ANN401  as `build_envelope`
) -> envelope_pb2.Envelope:
    """Return a message to send; "-" as its text reads stdin. With a type, JSON has its fields.

    Raises:
        InvalidArgumentError: it does not fit its type, or there is no such priority.
    """
    if priority not in PRIORITIES:
        problem = f"no such priority; there are: {', '.join(PRIORITIES)}"
        raise InvalidArgumentError("--priority", problem)
    load_type_plugins()
    text = sys.stdin.read() if text == "-" else text
    payload = _read_payload(text) if fields["type"] else text
    return build_envelope(payload, priority=cast("Priority", priority), **fields)


@asynccontextmanager
async def open_messaging(
    call: MeshCall, *, user: str = "", is_traced: bool = False
) -> AsyncGenerator[MessagingClient]:
    """Yield a client of the messaging service of a mesh; `is_traced` as in `open_mesh_view`."""
    async with open_mesh_view(call.mesh, is_traced=is_traced) as view:
        yield MessagingClient(view, account=call.account, caller=user)


def print_messages(found: Iterable[Stored], *, as_json: bool = False) -> None:
    """Print messages. A table without room for their ids has fewer columns."""
    optional = ("TYPE", "SENT")
    print_list(
        found, MESSAGE_COLUMNS, to_fields, as_json=as_json, optional=optional, empty="no messages"
    )


def list_dead(found: Iterable[Stored]) -> list[DeadLetter]:
    """Return the dead letters of messages."""
    return [
        DeadLetter(stored.envelope, delivery)
        for stored in found
        for delivery in stored.deliveries
        if delivery.state == envelope_pb2.DELIVERY_STATE_DEAD
    ]


def dead_letter_fields(dead: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON."""
    return {
        "envelope_id": dead.envelope.envelope_id,
        "type": dead.envelope.type,
        "sender": dead.envelope.sender,
        "recipient": dead.delivery.recipient,
        "attempts": dead.delivery.attempt_count,
        "problem": dead.problem,
        "update_time": dead.delivery.update_time.ToJsonString(),
    }


def room_fields(room: messaging_service_pb2.Room) -> dict[str, Any]:
    """Return a room as JSON."""
    return {
        "name": room.name,
        "members": list(room.members),
        "create_time": room.create_time.ToJsonString() if room.HasField("create_time") else "",
    }


def print_room(room: messaging_service_pb2.Room, *, as_json: bool) -> None:
    """Print a room and its members."""
    if as_json:
        print_json(room_fields(room))
    else:
        print(f"{room.name}: {', '.join(room.members) or 'no members'}")


def to_fields(stored: Stored) -> dict[str, Any]:
    """Return a message as JSON, with the names of the contract."""
    fields = message_to_dict(stored, with_proto_names=True)
    fields["envelope"] = envelope_fields(stored.envelope)
    return fields


def payload_text(envelope: envelope_pb2.Envelope) -> str:
    """Return the payload of a message as a text: JSON on one line for fields."""
    if envelope.WhichOneof("payload") != "data":
        return envelope.text
    return json.dumps(struct_json(envelope.data), ensure_ascii=False)


def envelope_fields(envelope: envelope_pb2.Envelope) -> dict[str, Any]:
    """Return a message without its deliveries as JSON, with the names of the contract."""
    return message_to_dict(envelope, with_proto_names=True)


async def read_messages(
    call: MeshCall, selected: messaging_service_pb2.EnvelopeFilter, *, limit: int
) -> Sequence[Stored]:
    """Return messages, newest first."""
    found: list[Stored] = []
    token = ""
    async with open_messaging(call) as client:
        while len(found) < limit:
            size = min(_PAGE_SIZE, limit - len(found))
            page = await client.read_page(selected, page_size=size, page_token=token)
            found += page.envelopes
            token = page.next_page_token
            if not token:
                break
    return found


async def print_new_messages(
    call: MeshCall,
    selected: messaging_service_pb2.EnvelopeFilter,
    *,
    after: int | None,
    with_deliveries: bool = False,
) -> None:
    """Print messages as they are accepted, a line each, until Ctrl-C."""
    async with open_messaging(call) as client:
        watch = client.watch(selected, after_position=after, with_deliveries=with_deliveries)
        async with aclosing(watch) as updates:
            async for update in updates:
                for stored in update.envelopes:
                    if call.json:
                        print_json(to_fields(stored))
                    else:
                        print(_follow_line(stored, with_state=with_deliveries), flush=True)


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


def _state_cell(stored: Stored) -> str:
    """Return the state of a message's deliveries; if they differ, each with its number."""
    names = [_state_name(delivery.state) for delivery in stored.deliveries]
    counts = {name: names.count(name) for name in names}
    if len(counts) < 2:
        return next(iter(counts), STORED)
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def describe_message(stored: Stored) -> list[str]:
    """Return the lines that describe a message, its payload and its deliveries."""
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


def _follow_line(stored: Stored, *, with_state: bool) -> str:
    envelope = stored.envelope
    time = envelope.create_time.ToDatetime().strftime("%H:%M:%S")
    way = f"{envelope.sender} > {envelope.recipient}"
    state = _state_cell(stored) if with_state else ""
    shown = f"  {paint_state(state, sys.stdout)}" if state else ""
    text = " ".join(remove_controls(payload_text(envelope)).split())
    return f"{time}  {remove_controls(way)}  {envelope.type}{shown}  {text}"
