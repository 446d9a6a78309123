"""The commands for messages between agents: they send, list, follow and repeat them."""

import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import MeshCall, argument, choose, flag, option
from trunkline.cli.terminal import paint_state, print_json, print_list, print_stderr
from trunkline.cli.times import expiry_cell, parse_since, time_cell
from trunkline.core.json_values import has_member, message_to_dict, struct_json
from trunkline.core.printable import remove_controls
from trunkline.core.task_states import OUTCOME_KEY
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import envelope_pb2, messaging_service_pb2

if TYPE_CHECKING:
    from trunkline.messages.client import MessagingClient
    from trunkline.tasks.messages import Payload, Priority

group = typer.Typer()

_PREFIX: Final = "DELIVERY_STATE_"
STATES: Final[Mapping[str, envelope_pb2.DeliveryState.ValueType]] = {
    name.removeprefix(_PREFIX).lower(): value
    for name, value in envelope_pb2.DeliveryState.items()
    if value != envelope_pb2.DELIVERY_STATE_UNSPECIFIED
}
_PRIORITIES: Final[Mapping[str, "Priority"]] = {"low": "low", "normal": "normal", "high": "high"}
_PAGE_SIZE: Final = 1000
# A message without deliveries: users read it in its room.
STORED: Final = "stored"

Stored: TypeAlias = envelope_pb2.StoredEnvelope

IdArgument = Annotated[str, argument("ID", "The message.")]
MessageIdArgument = Annotated[str, argument("ID", "Only this message.")]
RecipientArgument = Annotated[str, argument("RECIPIENT", "An agent, all, room:NAME or user:NAME.")]
PayloadArgument = Annotated[
    str, argument("PAYLOAD", "A text, or with --type a JSON object; - reads it from stdin.")
]
TypeOption = Annotated[str, option("NAME", "The type.", "--type")]
RoomOption = Annotated[str, option("NAME", "The room.", "--room")]
ConversationOption = Annotated[str, option("ID", "The correlation id.", "--conversation")]
PriorityOption = Annotated[
    str,
    option(
        "PRIORITY",
        "low, normal or high.",
        "--priority",
        autocompletion=lambda: list(_PRIORITIES),
        show_default=True,
    ),
]
UserOption = Annotated[str, option("NAME", "The user of the account.", "--user")]
StateOption = Annotated[
    str,
    option(
        "STATE",
        f"With a delivery in this state: {', '.join(STATES)}.",
        "--state",
        autocompletion=lambda: list(STATES),
    ),
]
LimitOption = Annotated[int, option("N", "At most so many.", min=1, max=10_000, show_default=True)]
AfterOption = Annotated[int | None, option("POSITION", "Begin after it; 0: with the first.", min=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The options that select messages. An empty value matches all messages."""

    room: RoomOption = ""
    type_name: TypeOption = ""
    conversation: ConversationOption = ""
    participant: Annotated[str, option("NAME", "From or to this agent or user.")] = ""
    recipient: Annotated[str, option("NAME", "To this recipient.")] = ""
    since: Annotated[str, option("TIME", "Since 30m, 12h, 7d or a time.")] = ""
    until: Annotated[str, option("TIME", "Before then.")] = ""

    def build_filter(
        self, *, message_id: str = "", state: str = ""
    ) -> messaging_service_pb2.EnvelopeFilter:
        """Return the filter of the messaging service.

        Raises:
            InvalidArgumentError: there is no such state, or a time is none.
        """
        query = messaging_service_pb2.EnvelopeFilter(
            envelope_id=message_id,
            room=self.room,
            type=self.type_name,
            correlation_id=self.conversation,
            participant=self.participant,
            recipient=self.recipient,
        )
        if state:
            query.states.append(choose("--state", state, STATES))
        if self.since:
            query.start_time.FromDatetime(parse_since(self.since))
        if self.until:
            query.end_time.FromDatetime(parse_since(self.until))
        return query


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


@command(group, "list")
async def list_messages(
    conditions: Conditions, *, state: StateOption = "", limit: LimitOption = 20, call: MeshCall
) -> None:
    """List messages, newest first."""
    found = await read_messages(call, conditions.build_filter(state=state), limit=limit)
    print_messages(found, as_json=call.json)


@command(group, "show")
async def show_message(message_id: IdArgument, *, call: MeshCall) -> None:
    """Show a message: its payload, and its deliveries with their attempts."""
    async with open_messaging(call) as client:
        stored = await client.get(message_id)
    if call.json:
        print_json(to_fields(stored))
    else:
        print("\n".join(describe_message(stored)))


@command(group, "send")
async def send_message(
    recipient: RecipientArgument,
    payload: PayloadArgument,
    *,
    type_name: TypeOption = "",
    room: RoomOption = "",
    priority: PriorityOption = "normal",
    conversation: ConversationOption = "",
    message_id: Annotated[str, option("ID", "Never sent twice. [new]", "--id")] = "",
    expires: Annotated[float | None, option("SECONDS", "Not delivered later.", min=0.001)] = None,
    user: UserOption = "",
    call: MeshCall,
) -> None:
    """Send a message. It is stored when the command ends."""
    message = build_message(
        payload,
        recipient=recipient,
        type=type_name,
        room=room,
        priority=priority,
        correlation_id=conversation,
        id=message_id,
        expires_in_s=expires,
    )
    async with open_messaging(call, user=user, is_traced=True) as client:
        (stored,) = await client.send([message])
    if call.json:
        print_json(to_fields(stored))
    else:
        to = ", ".join(delivery.recipient for delivery in stored.deliveries)
        print(f"{stored.envelope.envelope_id}  to {to or 'no recipient yet'}")


@command(group, "request")
async def request_reply(
    recipient: RecipientArgument,
    payload: PayloadArgument,
    *,
    type_name: TypeOption = "",
    timeout: Annotated[
        float, option("SECONDS", "The wait for the reply.", min=0.001, show_default=True)
    ] = 60.0,
    priority: PriorityOption = "normal",
    user: UserOption = "",
    call: MeshCall,
) -> ExitCode:
    """Send a message to an agent and print its reply."""
    message = build_message(payload, recipient=recipient, type=type_name, priority=priority)
    async with open_messaging(call, user=user, is_traced=True) as client:
        reply = await client.request(message, timeout_s=timeout)
    if call.json:
        print_json(envelope_fields(reply))
    else:
        print(remove_controls(payload_text(reply)))
    is_partial = has_member(reply.metadata, OUTCOME_KEY)
    return ExitCode.PARTIAL if is_partial else ExitCode.OK


@command(group, "follow")
async def follow_messages(
    conditions: Conditions,
    *,
    after: AfterOption = None,
    deliveries: Annotated[bool, flag("Also when a delivery ends.", "--deliveries")] = False,
    call: MeshCall,
) -> None:
    """Print messages as they are accepted, until Ctrl-C."""
    selected = conditions.build_filter()
    await print_new_messages(call, selected, after=after, with_deliveries=deliveries)


@command(group, "replay")
async def replay_messages(
    conditions: Conditions,
    message_id: MessageIdArgument = "",
    *,
    to: Annotated[str, option("RECIPIENT", "To this one instead.")] = "",
    dry_run: Annotated[bool, flag("Only say which.", "--dry-run")] = False,
    call: MeshCall,
) -> None:
    """Send messages again, as new messages that name the old. Give at least one condition."""
    selected = conditions.build_filter(message_id=message_id)
    async with open_messaging(call, is_traced=not dry_run) as client:
        ids = await client.replay(selected, recipient=to, dry_run=dry_run)
    if call.json:
        print_json({"envelope_ids": ids, "dry_run": dry_run})
        return
    for each in ids:
        print(each)
    print_stderr(f"{len(ids)} {'would be sent' if dry_run else 'sent'} again")


@command(group, "dead")
async def list_dead_letters(
    conditions: Conditions, *, limit: LimitOption = 20, call: MeshCall
) -> None:
    """List dead letters with the reason: messages that were not handled after all attempts."""
    found = await read_messages(call, conditions.build_filter(state="dead"), limit=limit)
    print_list(
        list_dead(found),
        DEAD_LETTER_COLUMNS,
        dead_letter_fields,
        as_json=call.json,
        empty="no dead letters",
    )


@command(group, "redrive")
async def redrive_messages(
    conditions: Conditions, message_id: MessageIdArgument = "", *, call: MeshCall
) -> None:
    """Deliver dead letters again, from their first attempt on. Without conditions: all."""
    async with open_messaging(call, is_traced=True) as client:
        count = await client.redrive(conditions.build_filter(message_id=message_id))
    if message_id and not count:
        problem = f"{message_id!r} is no dead letter; `trunkline messages dead` lists them"
        raise InvalidArgumentError("ID", problem)
    if call.json:
        print_json({"deliveries": count})
    else:
        print(f"{count} delivered again")


@command(group, "purge")
async def purge_messages(
    conditions: Conditions,
    message_id: MessageIdArgument = "",
    *,
    state: StateOption = "",
    call: MeshCall,
) -> None:
    """Delete messages whose deliveries have ended. Give at least one condition."""
    selected = conditions.build_filter(message_id=message_id, state=state)
    async with open_messaging(call, is_traced=True) as client:
        count = await client.purge(selected)
    if call.json:
        print_json({"envelopes": count})
    else:
        print(f"{count} deleted")


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
    from trunkline.messages.conversion import build_envelope
    from trunkline.messages.types import load_type_plugins

    chosen = choose("--priority", priority, _PRIORITIES)
    load_type_plugins()
    text = sys.stdin.read() if text == "-" else text
    payload = _read_payload(text) if fields["type"] else text
    return build_envelope(payload, priority=chosen, **fields)


@asynccontextmanager
async def open_messaging(
    call: MeshCall, *, user: str = "", is_traced: bool = False
) -> "AsyncGenerator[MessagingClient]":
    """Yield a client of the messaging service of a mesh; `is_traced` as in `open_directory`."""
    from trunkline.cli.directory import open_directory
    from trunkline.messages.client import MessagingClient

    async with open_directory(call.mesh, is_traced=is_traced) as directory:
        yield MessagingClient(directory, account=call.account, caller=user)


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


def _read_payload(text: str) -> "Payload":
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
