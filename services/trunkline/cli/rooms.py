"""`trunkline rooms`: shows rooms, and changes their members."""

from typing import Any

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.messages import open_client
from trunkline.cli.terminal import print_json, print_table
from trunkline.cli.times import time_cell
from trunkline.v1 import messaging_service_pb2


async def list_rooms(mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Print the rooms that have members."""
    async with open_mesh_view(mesh) as view:
        rooms = await open_client(view, account).list_rooms()
    if as_json:
        print_json([_to_fields(room) for room in rooms])
    else:
        rows = [
            (
                room.name,
                str(len(room.members)),
                time_cell(room.create_time),
                ", ".join(room.members),
            )
            for room in rooms
        ]
        print_table(("ROOM", "MEMBERS", "SINCE", "WHO"), rows, empty="no rooms")
    return ExitCode.OK


async def show_room(name: str, mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Print the members of a room. Exits 1 if it has none."""
    async with open_mesh_view(mesh) as view:
        rooms = await open_client(view, account).list_rooms()
    found = next((room for room in rooms if room.name == name), None)
    _print_room(found or messaging_service_pb2.Room(name=name), as_json=as_json)
    return ExitCode.FAILED if found is None else ExitCode.OK


async def join_room(
    name: str, member: str, mesh: str | None, *, account: str, user: str, as_json: bool
) -> ExitCode:
    """Add a member; print the room.

    Raises:
        InvalidArgumentError: the room's name is wrong, or there is no such agent.
    """
    async with open_mesh_view(mesh, is_traced=True) as view:
        room = await open_client(view, account, user).join(name, member)
    _print_room(room, as_json=as_json)
    return ExitCode.OK


async def leave_room(
    name: str, member: str, mesh: str | None, *, account: str, user: str, as_json: bool
) -> ExitCode:
    """Remove a member; print the room. Raises as `join_room`."""
    async with open_mesh_view(mesh, is_traced=True) as view:
        room = await open_client(view, account, user).leave(name, member)
    _print_room(room, as_json=as_json)
    return ExitCode.OK


def _print_room(room: messaging_service_pb2.Room, *, as_json: bool) -> None:
    if as_json:
        print_json(_to_fields(room))
    else:
        print(f"{room.name}: {', '.join(room.members) or 'no members'}")


def _to_fields(room: messaging_service_pb2.Room) -> dict[str, Any]:
    return {
        "name": room.name,
        "members": list(room.members),
        "create_time": room.create_time.ToJsonString() if room.HasField("create_time") else "",
    }
