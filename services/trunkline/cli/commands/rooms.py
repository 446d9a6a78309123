"""The commands for rooms: they list rooms, and let agents and users join or leave them."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from trunkline.cli.commands.messages import UserOption, open_messaging
from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import MeshCall, argument
from trunkline.cli.terminal import print_json, print_list
from trunkline.cli.times import time_cell
from trunkline.v1 import messaging_service_pb2

group = typer.Typer()

RoomArgument = Annotated[str, argument("ROOM", "Its name.")]
MemberArgument = Annotated[str, argument("AGENT", "The agent. [the user]")]

ROOM_COLUMNS: Final[Mapping[str, Callable[[messaging_service_pb2.Room], object]]] = {
    "ROOM": lambda room: room.name,
    "MEMBERS": lambda room: len(room.members),
    "SINCE": lambda room: time_cell(room.create_time),
    "WHO": lambda room: ", ".join(room.members),
}


@command(group, "list")
async def list_rooms(*, call: MeshCall) -> None:
    """List the rooms that have members."""
    async with open_messaging(call) as client:
        found = await client.list_rooms()
    print_list(found, ROOM_COLUMNS, room_fields, as_json=call.json, empty="no rooms")


@command(group, "show")
async def show_room(room: RoomArgument, *, call: MeshCall) -> ExitCode:
    """Show the members of a room."""
    async with open_messaging(call) as client:
        found = [each for each in await client.list_rooms() if each.name == room]
    print_room(found[0] if found else messaging_service_pb2.Room(name=room), as_json=call.json)
    return ExitCode.OK if found else ExitCode.FAILED


@command(group, "join")
async def join_room(
    room: RoomArgument, member: MemberArgument = "", *, user: UserOption = "", call: MeshCall
) -> None:
    """Add an agent, or the user, to a room. The room exists from its first member on."""
    async with open_messaging(call, user=user, is_traced=True) as client:
        print_room(await client.join(room, member), as_json=call.json)


@command(group, "leave")
async def leave_room(
    room: RoomArgument, member: MemberArgument = "", *, user: UserOption = "", call: MeshCall
) -> None:
    """Remove an agent, or the user, from a room."""
    async with open_messaging(call, user=user, is_traced=True) as client:
        print_room(await client.leave(room, member), as_json=call.json)


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
