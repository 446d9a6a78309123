"""The commands for messages between agents, and for rooms."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import AccountOption, JsonOption, MeshOption, argument, flag, option
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.v1 import messaging_service_pb2

messages = typer.Typer(help="Send messages between agents, list, follow and repeat them.")
rooms = typer.Typer(help="List rooms, join or leave them, and watch their messages.")

_STATES = ("pending", "running", "handled", "dead", "expired", "canceled")
_PRIORITIES = ("low", "normal", "high")

IdArgument = Annotated[str, argument("ID", "The message.")]
RecipientArgument = Annotated[str, argument("RECIPIENT", "An agent, all, room:NAME or user:NAME.")]
PayloadArgument = Annotated[
    str, argument("PAYLOAD", "A text, or with --type a JSON object; - reads it from stdin.")
]
TypeOption = Annotated[str, option("NAME", "The type.", "--type")]
RoomOption = Annotated[str, option("NAME", "The room.", "--room")]
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
ConversationOption = Annotated[str, option("ID", "The correlation id.", "--conversation")]
MessageIdArgument = Annotated[str, argument("[ID]", "Only this message.")]
ParticipantOption = Annotated[
    str, option("NAME", "From or to this agent or user.", "--participant")
]
ToOption = Annotated[str, option("NAME", "To this recipient.", "--recipient")]
StateOption = Annotated[
    str,
    option(
        "STATE",
        f"With a delivery in this state: {', '.join(_STATES)}.",
        "--state",
        autocompletion=lambda: list(_STATES),
    ),
]
SinceOption = Annotated[str, option("TIME", "Since 30m, 12h, 7d or a time.", "--since")]
UntilOption = Annotated[str, option("TIME", "Before then.", "--until")]
LimitOption = Annotated[int, option("N", "At most so many.", min=1, max=10_000, show_default=True)]
AfterOption = Annotated[int | None, option("POSITION", "Begin after it; 0: with all.", min=0)]
RoomArgument = Annotated[str, argument("ROOM", "Its name.")]
MemberArgument = Annotated[str, argument("[AGENT]", "The agent. [the user]")]


@command(messages, "list")
async def list_messages(
    mesh: MeshOption = None,
    *,
    room: RoomOption = "",
    type_name: TypeOption = "",
    conversation: ConversationOption = "",
    participant: ParticipantOption = "",
    recipient: ToOption = "",
    state: StateOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    limit: LimitOption = 20,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """List messages, newest first."""
    from trunkline.cli.messages import build_filter, print_messages, read_messages, to_fields

    selected = build_filter(
        room=room,
        type=type_name,
        correlation_id=conversation,
        participant=participant,
        recipient=recipient,
        state=state,
        since=since,
        until=until,
    )
    found = await read_messages(mesh, account, selected, limit=limit)
    if json:
        print_json([to_fields(stored) for stored in found])
    else:
        print_messages(found)


@command(messages, "show")
async def show_message(
    message_id: IdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show a message: its payload, and its deliveries with their attempts."""
    from trunkline.cli.messages import describe_message, open_messaging, to_fields

    async with open_messaging(mesh, account) as client:
        stored = await client.get(message_id)
    if json:
        print_json(to_fields(stored))
    else:
        print("\n".join(describe_message(stored)))


@command(messages, "send")
async def send_message(
    recipient: RecipientArgument,
    payload: PayloadArgument,
    mesh: MeshOption = None,
    *,
    type_name: TypeOption = "",
    room: RoomOption = "",
    priority: PriorityOption = "normal",
    conversation: ConversationOption = "",
    message_id: Annotated[str, option("ID", "Never sent twice. [new]", "--id")] = "",
    expires: Annotated[float | None, option("SECONDS", "Not delivered later.", min=0.001)] = None,
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
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
    async with open_messaging(mesh, account, user, is_traced=True) as client:
        (stored,) = await client.send([message])
    if json:
        print_json(to_fields(stored))
    else:
        to = ", ".join(delivery.recipient for delivery in stored.deliveries)
        print(f"{stored.envelope.envelope_id}  to {to or 'no recipient yet'}")


@command(messages, "request")
async def request_reply(
    recipient: RecipientArgument,
    payload: PayloadArgument,
    mesh: MeshOption = None,
    *,
    type_name: TypeOption = "",
    timeout: Annotated[
        float, option("SECONDS", "The wait for the reply.", min=0.001, show_default=True)
    ] = 60.0,
    priority: PriorityOption = "normal",
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
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
    async with open_messaging(mesh, account, user, is_traced=True) as client:
        reply = await client.request(message, timeout_s=timeout)
    if json:
        print_json(envelope_fields(reply))
    else:
        print(remove_controls(payload_text(reply)))
    is_partial = has_member(reply.metadata, OUTCOME_KEY)
    return ExitCode.PARTIAL if is_partial else ExitCode.OK


@command(messages, "follow")
async def follow_messages(
    mesh: MeshOption = None,
    *,
    room: RoomOption = "",
    type_name: TypeOption = "",
    conversation: ConversationOption = "",
    participant: ParticipantOption = "",
    recipient: ToOption = "",
    after: AfterOption = None,
    deliveries: Annotated[bool, flag("Also when a delivery ends.", "--deliveries")] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Print messages as they are accepted, until Ctrl-C."""
    from trunkline.cli.messages import build_filter, follow_messages

    selected = build_filter(
        room=room,
        type=type_name,
        correlation_id=conversation,
        participant=participant,
        recipient=recipient,
    )
    await follow_messages(
        mesh, account, selected, after=after, with_deliveries=deliveries, as_json=json
    )


@command(messages, "replay")
async def replay_messages(
    message_id: MessageIdArgument = "",
    mesh: MeshOption = None,
    *,
    conversation: ConversationOption = "",
    room: RoomOption = "",
    type_name: TypeOption = "",
    participant: ParticipantOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    to: Annotated[str, option("RECIPIENT", "To this one instead.")] = "",
    dry_run: Annotated[bool, flag("Only say which.", "--dry-run")] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Send messages again, as new ones that name the old ones. Give at least one condition."""
    from trunkline.cli.messages import build_filter, open_messaging

    selected = build_filter(
        room=room,
        type=type_name,
        correlation_id=conversation,
        envelope_id=message_id,
        participant=participant,
        since=since,
        until=until,
    )
    async with open_messaging(mesh, account, is_traced=not dry_run) as client:
        ids = await client.replay(selected, recipient=to, dry_run=dry_run)
    if json:
        print_json({"envelope_ids": ids, "dry_run": dry_run})
        return
    for each in ids:
        print(each)
    print_stderr(f"{len(ids)} {'would be sent' if dry_run else 'sent'} again")


@command(messages, "dead")
async def list_dead_letters(
    mesh: MeshOption = None,
    *,
    room: RoomOption = "",
    recipient: ToOption = "",
    since: SinceOption = "",
    limit: LimitOption = 20,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """List dead letters with the reason: messages that were not handled after all attempts."""
    from trunkline.cli.messages import build_filter, print_dead_letters, read_messages

    selected = build_filter(room=room, recipient=recipient, state="dead", since=since)
    print_dead_letters(await read_messages(mesh, account, selected, limit=limit), as_json=json)


@command(messages, "redrive")
async def redrive_messages(
    message_id: MessageIdArgument = "",
    mesh: MeshOption = None,
    *,
    room: RoomOption = "",
    type_name: TypeOption = "",
    recipient: ToOption = "",
    since: SinceOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Deliver dead letters again, from their first attempt on. Without conditions: all."""
    from trunkline.cli.messages import build_filter, open_messaging

    selected = build_filter(
        room=room, type=type_name, envelope_id=message_id, recipient=recipient, since=since
    )
    async with open_messaging(mesh, account, is_traced=True) as client:
        count = await client.redrive(selected)
    if message_id and not count:
        problem = f"{message_id!r} is no dead letter; `trunkline messages dead` lists them"
        raise InvalidArgumentError("ID", problem)
    if json:
        print_json({"deliveries": count})
    else:
        print(f"{count} delivered again")


@command(messages, "purge")
async def purge_messages(
    message_id: MessageIdArgument = "",
    mesh: MeshOption = None,
    *,
    conversation: ConversationOption = "",
    room: RoomOption = "",
    type_name: TypeOption = "",
    state: StateOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Delete messages whose deliveries have ended. Give at least one condition."""
    from trunkline.cli.messages import build_filter, open_messaging

    selected = build_filter(
        room=room,
        type=type_name,
        correlation_id=conversation,
        envelope_id=message_id,
        state=state,
        since=since,
        until=until,
    )
    async with open_messaging(mesh, account, is_traced=True) as client:
        count = await client.purge(selected)
    if json:
        print_json({"envelopes": count})
    else:
        print(f"{count} deleted")


@command(rooms, "list")
async def list_rooms(
    mesh: MeshOption = None, *, account: AccountOption = ANONYMOUS_ACCOUNT, json: JsonOption = False
) -> None:
    """List the rooms that have members."""
    from trunkline.cli.messages import open_messaging
    from trunkline.cli.times import time_cell

    async with open_messaging(mesh, account) as client:
        found = await client.list_rooms()
    if json:
        print_json([_room_fields(room) for room in found])
        return
    rows = [
        (room.name, str(len(room.members)), time_cell(room.create_time), ", ".join(room.members))
        for room in found
    ]
    print_table(("ROOM", "MEMBERS", "SINCE", "WHO"), rows, empty="no rooms")


@command(rooms, "show")
async def show_room(
    room: RoomArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> ExitCode:
    """Show the members of a room."""
    from trunkline.cli.messages import open_messaging
    from trunkline.v1 import messaging_service_pb2

    async with open_messaging(mesh, account) as client:
        found = [each for each in await client.list_rooms() if each.name == room]
    _print_room(found[0] if found else messaging_service_pb2.Room(name=room), as_json=json)
    return ExitCode.OK if found else ExitCode.FAILED


@command(rooms, "join")
async def join_room(
    room: RoomArgument,
    member: MemberArgument = "",
    mesh: MeshOption = None,
    *,
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Add an agent, or the user, to a room. The room exists from its first member on."""
    from trunkline.cli.messages import open_messaging

    async with open_messaging(mesh, account, user, is_traced=True) as client:
        _print_room(await client.join(room, member), as_json=json)


@command(rooms, "leave")
async def leave_room(
    room: RoomArgument,
    member: MemberArgument = "",
    mesh: MeshOption = None,
    *,
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Remove an agent, or the user, from a room."""
    from trunkline.cli.messages import open_messaging

    async with open_messaging(mesh, account, user, is_traced=True) as client:
        _print_room(await client.leave(room, member), as_json=json)


@command(rooms, "watch")
async def watch_room(
    room: RoomArgument,
    mesh: MeshOption = None,
    *,
    after: AfterOption = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Print the messages of a room as they are accepted, until Ctrl-C."""
    from trunkline.cli.messages import build_filter, follow_messages

    await follow_messages(mesh, account, build_filter(room=room), after=after, as_json=json)


def _print_room(room: "messaging_service_pb2.Room", *, as_json: bool) -> None:

    if as_json:
        print_json(_room_fields(room))
    else:
        print(f"{room.name}: {', '.join(room.members) or 'no members'}")


def _room_fields(room: "messaging_service_pb2.Room") -> dict[str, Any]:
    return {
        "name": room.name,
        "members": list(room.members),
        "create_time": room.create_time.ToJsonString() if room.HasField("create_time") else "",
    }
