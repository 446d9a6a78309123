"""The commands for messages between agents, and for rooms."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import MeshCall, argument, flag, option
from trunkline.cli.terminal import print_json, print_list, print_stderr
from trunkline.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.v1 import messaging_service_pb2

messages = typer.Typer(help="Send messages between agents, list, follow and repeat them.")
rooms = typer.Typer(help="List rooms, join or leave them. `messages follow --room` shows messages.")

_STATES = ("pending", "running", "handled", "dead", "expired", "canceled")
_PRIORITIES = ("low", "normal", "high")

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
        f"With a delivery in this state: {', '.join(_STATES)}.",
        "--state",
        autocompletion=lambda: list(_STATES),
    ),
]
LimitOption = Annotated[int, option("N", "At most so many.", min=1, max=10_000, show_default=True)]
AfterOption = Annotated[int | None, option("POSITION", "Begin after it; 0: with the first.", min=0)]
RoomArgument = Annotated[str, argument("ROOM", "Its name.")]
MemberArgument = Annotated[str, argument("AGENT", "The agent. [the user]")]


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
    ) -> "messaging_service_pb2.EnvelopeFilter":
        """Return the filter of the messaging service.

        Raises:
            InvalidArgumentError: there is no such state, or a time is none.
        """
        from trunkline.cli.messages import STATES
        from trunkline.cli.times import parse_since
        from trunkline.v1 import messaging_service_pb2

        query = messaging_service_pb2.EnvelopeFilter(
            envelope_id=message_id,
            room=self.room,
            type=self.type_name,
            correlation_id=self.conversation,
            participant=self.participant,
            recipient=self.recipient,
        )
        if state:
            if state not in STATES:
                problem = f"no such state; there are: {', '.join(STATES)}"
                raise InvalidArgumentError("--state", problem)
            query.states.append(STATES[state])
        if self.since:
            query.start_time.FromDatetime(parse_since(self.since))
        if self.until:
            query.end_time.FromDatetime(parse_since(self.until))
        return query


@command(messages, "list")
async def list_messages(
    conditions: Conditions, *, state: StateOption = "", limit: LimitOption = 20, call: MeshCall
) -> None:
    """List messages, newest first."""
    from trunkline.cli.messages import print_messages, read_messages

    found = await read_messages(call, conditions.build_filter(state=state), limit=limit)
    print_messages(found, as_json=call.json)


@command(messages, "show")
async def show_message(message_id: IdArgument, *, call: MeshCall) -> None:
    """Show a message: its payload, and its deliveries with their attempts."""
    from trunkline.cli.messages import describe_message, open_messaging, to_fields

    async with open_messaging(call) as client:
        stored = await client.get(message_id)
    if call.json:
        print_json(to_fields(stored))
    else:
        print("\n".join(describe_message(stored)))


@command(messages, "send")
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
    from trunkline.cli.messages import build_message, open_messaging, to_fields

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


@command(messages, "request")
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
    from trunkline.cli.messages import (
        build_message,
        envelope_fields,
        open_messaging,
        payload_text,
    )
    from trunkline.core.json_values import has_member
    from trunkline.core.printable import remove_controls
    from trunkline.core.task_states import OUTCOME_KEY

    message = build_message(payload, recipient=recipient, type=type_name, priority=priority)
    async with open_messaging(call, user=user, is_traced=True) as client:
        reply = await client.request(message, timeout_s=timeout)
    if call.json:
        print_json(envelope_fields(reply))
    else:
        print(remove_controls(payload_text(reply)))
    is_partial = has_member(reply.metadata, OUTCOME_KEY)
    return ExitCode.PARTIAL if is_partial else ExitCode.OK


@command(messages, "follow")
async def follow_messages(
    conditions: Conditions,
    *,
    after: AfterOption = None,
    deliveries: Annotated[bool, flag("Also when a delivery ends.", "--deliveries")] = False,
    call: MeshCall,
) -> None:
    """Print messages as they are accepted, until Ctrl-C."""
    from trunkline.cli.messages import print_new_messages

    selected = conditions.build_filter()
    await print_new_messages(call, selected, after=after, with_deliveries=deliveries)


@command(messages, "replay")
async def replay_messages(
    conditions: Conditions,
    message_id: MessageIdArgument = "",
    *,
    to: Annotated[str, option("RECIPIENT", "To this one instead.")] = "",
    dry_run: Annotated[bool, flag("Only say which.", "--dry-run")] = False,
    call: MeshCall,
) -> None:
    """Send messages again, as new messages that name the old. Give at least one condition."""
    from trunkline.cli.messages import open_messaging

    selected = conditions.build_filter(message_id=message_id)
    async with open_messaging(call, is_traced=not dry_run) as client:
        ids = await client.replay(selected, recipient=to, dry_run=dry_run)
    if call.json:
        print_json({"envelope_ids": ids, "dry_run": dry_run})
        return
    for each in ids:
        print(each)
    print_stderr(f"{len(ids)} {'would be sent' if dry_run else 'sent'} again")


@command(messages, "dead")
async def list_dead_letters(
    conditions: Conditions, *, limit: LimitOption = 20, call: MeshCall
) -> None:
    """List dead letters with the reason: messages that were not handled after all attempts."""
    from trunkline.cli.messages import (
        DEAD_LETTER_COLUMNS,
        dead_letter_fields,
        list_dead,
        read_messages,
    )

    found = await read_messages(call, conditions.build_filter(state="dead"), limit=limit)
    print_list(
        list_dead(found),
        DEAD_LETTER_COLUMNS,
        dead_letter_fields,
        as_json=call.json,
        empty="no dead letters",
    )


@command(messages, "redrive")
async def redrive_messages(
    conditions: Conditions, message_id: MessageIdArgument = "", *, call: MeshCall
) -> None:
    """Deliver dead letters again, from their first attempt on. Without conditions: all."""
    from trunkline.cli.messages import open_messaging

    async with open_messaging(call, is_traced=True) as client:
        count = await client.redrive(conditions.build_filter(message_id=message_id))
    if message_id and not count:
        problem = f"{message_id!r} is no dead letter; `trunkline messages dead` lists them"
        raise InvalidArgumentError("ID", problem)
    if call.json:
        print_json({"deliveries": count})
    else:
        print(f"{count} delivered again")


@command(messages, "purge")
async def purge_messages(
    conditions: Conditions,
    message_id: MessageIdArgument = "",
    *,
    state: StateOption = "",
    call: MeshCall,
) -> None:
    """Delete messages whose deliveries have ended. Give at least one condition."""
    from trunkline.cli.messages import open_messaging

    selected = conditions.build_filter(message_id=message_id, state=state)
    async with open_messaging(call, is_traced=True) as client:
        count = await client.purge(selected)
    if call.json:
        print_json({"envelopes": count})
    else:
        print(f"{count} deleted")


@command(rooms, "list")
async def list_rooms(*, call: MeshCall) -> None:
    """List the rooms that have members."""
    from trunkline.cli.messages import ROOM_COLUMNS, open_messaging, room_fields

    async with open_messaging(call) as client:
        found = await client.list_rooms()
    print_list(found, ROOM_COLUMNS, room_fields, as_json=call.json, empty="no rooms")


@command(rooms, "show")
async def show_room(room: RoomArgument, *, call: MeshCall) -> ExitCode:
    """Show the members of a room."""
    from trunkline.cli.messages import open_messaging, print_room
    from trunkline.v1 import messaging_service_pb2

    async with open_messaging(call) as client:
        found = [each for each in await client.list_rooms() if each.name == room]
    print_room(found[0] if found else messaging_service_pb2.Room(name=room), as_json=call.json)
    return ExitCode.OK if found else ExitCode.FAILED


@command(rooms, "join")
async def join_room(
    room: RoomArgument, member: MemberArgument = "", *, user: UserOption = "", call: MeshCall
) -> None:
    """Add an agent, or the user, to a room. The room exists from its first member on."""
    from trunkline.cli.messages import open_messaging, print_room

    async with open_messaging(call, user=user, is_traced=True) as client:
        print_room(await client.join(room, member), as_json=call.json)


@command(rooms, "leave")
async def leave_room(
    room: RoomArgument, member: MemberArgument = "", *, user: UserOption = "", call: MeshCall
) -> None:
    """Remove an agent, or the user, from a room."""
    from trunkline.cli.messages import open_messaging, print_room

    async with open_messaging(call, user=user, is_traced=True) as client:
        print_room(await client.leave(room, member), as_json=call.json)
