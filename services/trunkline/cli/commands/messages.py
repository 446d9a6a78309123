"""The commands for messages between agents, and for rooms."""

from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.cli.exits import run
from trunkline.cli.options import AccountOption, JsonOption, MeshOption

if TYPE_CHECKING:
    from trunkline.cli.messages import MessageQuery

messages = typer.Typer(help="Send messages between agents, list, follow and repeat them.")
rooms = typer.Typer(help="List rooms, join or leave them, and watch their messages.")

_STATES = ("pending", "running", "handled", "dead", "expired", "canceled")
_PRIORITIES = ("low", "normal", "high")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The message.", show_default=False)]
RecipientArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPIENT", help="An agent, all, room:NAME or user:NAME.", show_default=False
    ),
]
PayloadArgument = Annotated[
    str,
    typer.Argument(
        metavar="PAYLOAD",
        help="A text, or with --type a JSON object; - reads it from stdin.",
        show_default=False,
    ),
]
TypeOption = Annotated[
    str, typer.Option("--type", metavar="NAME", help="The type.", show_default=False)
]
RoomOption = Annotated[
    str, typer.Option("--room", metavar="NAME", help="The room.", show_default=False)
]
PriorityOption = Annotated[
    str,
    typer.Option(
        "--priority",
        metavar="PRIORITY",
        help="low, normal or high.",
        autocompletion=lambda: list(_PRIORITIES),
    ),
]
UserOption = Annotated[
    str,
    typer.Option("--user", metavar="NAME", help="The user of the account.", show_default=False),
]
ConversationOption = Annotated[
    str,
    typer.Option("--conversation", metavar="ID", help="The correlation id.", show_default=False),
]
MessageIdArgument = Annotated[
    str, typer.Argument(metavar="[ID]", help="Only this message.", show_default=False)
]
ParticipantOption = Annotated[
    str,
    typer.Option(
        "--participant", metavar="NAME", help="From or to this agent or user.", show_default=False
    ),
]
ToOption = Annotated[
    str,
    typer.Option("--recipient", metavar="NAME", help="To this recipient.", show_default=False),
]
StateOption = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="STATE",
        help=f"With a delivery in this state: {', '.join(_STATES)}.",
        show_default=False,
        autocompletion=lambda: list(_STATES),
    ),
]
SinceOption = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Since 30m, 12h, 7d or a time.", show_default=False
    ),
]
UntilOption = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Before then.", show_default=False)
]
RoomArgument = Annotated[str, typer.Argument(metavar="ROOM", help="Its name.", show_default=False)]
MemberArgument = Annotated[
    str,
    typer.Argument(metavar="[AGENT]", help="The agent. [the user]", show_default=False),
]


def _query(
    account: str,
    *,
    room: str,
    type_name: str,
    conversation: str = "",
    message_id: str = "",
    participant: str = "",
    recipient: str = "",
    state: str = "",
    since: str = "",
    until: str = "",
) -> "MessageQuery":
    from trunkline.cli.messages import MessageQuery

    return MessageQuery(
        account=account,
        room=room,
        type=type_name,
        correlation_id=conversation,
        envelope_id=message_id,
        participant=participant,
        recipient=recipient,
        state=state,
        since=since,
        until=until,
    )


@messages.command("list")
def messages_list(
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
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many.")
    ] = 20,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """List messages, newest first."""
    from trunkline.cli import messages as command

    query = _query(
        account,
        room=room,
        type_name=type_name,
        conversation=conversation,
        participant=participant,
        recipient=recipient,
        state=state,
        since=since,
        until=until,
    )
    run(command.list_messages(mesh, query, limit=limit, as_json=json))


@messages.command("show")
def messages_show(
    message_id: IdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show a message: its payload, and its deliveries with their attempts."""
    from trunkline.cli import messages as command

    run(command.show_message(message_id, mesh, account=account, as_json=json))


@messages.command("send")
def messages_send(
    recipient: RecipientArgument,
    payload: PayloadArgument,
    mesh: MeshOption = None,
    *,
    type_name: TypeOption = "",
    room: RoomOption = "",
    priority: PriorityOption = "normal",
    conversation: ConversationOption = "",
    message_id: Annotated[
        str,
        typer.Option("--id", metavar="ID", help="Never sent twice. [new]", show_default=False),
    ] = "",
    expires: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="Not delivered later.", show_default=False),
    ] = None,
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Send a message. It is stored when the command ends."""
    from trunkline.cli import messages as command

    message = command.Outgoing(
        recipient,
        payload,
        type=type_name,
        room=room,
        priority=priority,
        correlation_id=conversation,
        id=message_id,
        expires_in_s=expires,
        account=account,
        user=user,
    )
    run(command.send_message(message, mesh, as_json=json))


@messages.command("request")
def messages_request(
    recipient: RecipientArgument,
    payload: PayloadArgument,
    mesh: MeshOption = None,
    *,
    type_name: TypeOption = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="The wait for the reply.")
    ] = 60.0,
    priority: PriorityOption = "normal",
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Send a message to an agent and print its reply."""
    from trunkline.cli import messages as command

    message = command.Outgoing(
        recipient, payload, type=type_name, priority=priority, account=account, user=user
    )
    run(command.request_reply(message, mesh, timeout_s=timeout, as_json=json))


@messages.command("follow")
def messages_follow(
    mesh: MeshOption = None,
    *,
    room: RoomOption = "",
    type_name: TypeOption = "",
    conversation: ConversationOption = "",
    participant: ParticipantOption = "",
    recipient: ToOption = "",
    after: Annotated[
        int | None,
        typer.Option(
            metavar="POSITION", min=0, help="Begin after it; 0: with all.", show_default=False
        ),
    ] = None,
    deliveries: Annotated[
        bool, typer.Option("--deliveries", help="Also when a delivery ends.")
    ] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Print messages as they are accepted, until Ctrl-C."""
    from trunkline.cli import messages as command

    query = _query(
        account,
        room=room,
        type_name=type_name,
        conversation=conversation,
        participant=participant,
        recipient=recipient,
    )
    run(command.follow_messages(mesh, query, after=after, with_deliveries=deliveries, as_json=json))


@messages.command("replay")
def messages_replay(
    message_id: MessageIdArgument = "",
    mesh: MeshOption = None,
    *,
    conversation: ConversationOption = "",
    room: RoomOption = "",
    type_name: TypeOption = "",
    participant: ParticipantOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    to: Annotated[
        str,
        typer.Option(metavar="RECIPIENT", help="To this one instead.", show_default=False),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Send messages again, as new ones that name the old ones. Give at least one condition."""
    from trunkline.cli import messages as command

    query = _query(
        account,
        room=room,
        type_name=type_name,
        conversation=conversation,
        message_id=message_id,
        participant=participant,
        since=since,
        until=until,
    )
    run(command.replay_messages(mesh, query, recipient=to, dry_run=dry_run, as_json=json))


@messages.command("dead")
def messages_dead(
    mesh: MeshOption = None,
    *,
    room: RoomOption = "",
    recipient: ToOption = "",
    since: SinceOption = "",
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many.")
    ] = 20,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """List dead letters with the reason: messages that were not handled after all attempts."""
    from trunkline.cli import messages as command

    query = _query(account, room=room, type_name="", recipient=recipient, state="dead", since=since)
    run(command.list_dead_letters(mesh, query, limit=limit, as_json=json))


@messages.command("redrive")
def messages_redrive(
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
    from trunkline.cli import messages as command

    query = _query(
        account,
        room=room,
        type_name=type_name,
        message_id=message_id,
        recipient=recipient,
        since=since,
    )
    run(command.redrive_messages(mesh, query, as_json=json))


@messages.command("purge")
def messages_purge(
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
    from trunkline.cli import messages as command

    query = _query(
        account,
        room=room,
        type_name=type_name,
        conversation=conversation,
        message_id=message_id,
        state=state,
        since=since,
        until=until,
    )
    run(command.purge_messages(mesh, query, as_json=json))


@rooms.command("list")
def rooms_list(
    mesh: MeshOption = None, *, account: AccountOption = ANONYMOUS_ACCOUNT, json: JsonOption = False
) -> None:
    """List the rooms that have members."""
    from trunkline.cli import rooms as command

    run(command.list_rooms(mesh, account=account, as_json=json))


@rooms.command("show")
def rooms_show(
    room: RoomArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Show the members of a room."""
    from trunkline.cli import rooms as command

    run(command.show_room(room, mesh, account=account, as_json=json))


@rooms.command("join")
def rooms_join(
    room: RoomArgument,
    member: MemberArgument = "",
    mesh: MeshOption = None,
    *,
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Add an agent, or the user, to a room. The room exists from its first member on."""
    from trunkline.cli import rooms as command

    run(command.join_room(room, member, mesh, account=account, user=user, as_json=json))


@rooms.command("leave")
def rooms_leave(
    room: RoomArgument,
    member: MemberArgument = "",
    mesh: MeshOption = None,
    *,
    user: UserOption = "",
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Remove an agent, or the user, from a room."""
    from trunkline.cli import rooms as command

    run(command.leave_room(room, member, mesh, account=account, user=user, as_json=json))


@rooms.command("watch")
def rooms_watch(
    room: RoomArgument,
    mesh: MeshOption = None,
    *,
    after: Annotated[
        int | None,
        typer.Option(
            metavar="POSITION", min=0, help="Begin after it; 0: with all.", show_default=False
        ),
    ] = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Print the messages of a room as they are accepted, until Ctrl-C."""
    from trunkline.cli import messages as command

    query = _query(account, room=room, type_name="")
    run(command.follow_messages(mesh, query, after=after, with_deliveries=False, as_json=json))
