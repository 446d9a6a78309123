"""Rooms: their queries, mutations and histories."""

from typing import Any

from trunkline.messages.store import EnvelopeFilter, Room
from trunkline_bridge.api.graphql.context import OperationContext
from trunkline_bridge.api.graphql.fields import Node
from trunkline_bridge.api.graphql.messages import read_messages


class RoomNode(Node):
    """A room, with the agents and users in it."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self.name: str = room.name

    async def history(
        self, context: OperationContext, first: int, after: str | None
    ) -> dict[str, Any]:
        """Return the messages of the room, newest first."""
        return await read_messages(context, EnvelopeFilter(room=self.name), first, after)


class RoomQueries:
    """Queries of rooms."""

    async def room(self, context: OperationContext, name: str) -> RoomNode:
        """Return a room. A room without members is empty."""
        return RoomNode(await context.call(context.messages.get_room, name))

    async def rooms(
        self, context: OperationContext, first: int, after: str | None
    ) -> dict[str, Any]:
        """Return the rooms of the account, sorted by name."""
        size = context.check_page_size(first)
        rooms = await context.call(context.messages.list_rooms)
        later = [room for room in rooms if room.name > (after or "")]
        page = later[:size]
        return {
            "nodes": list(map(RoomNode, page)),
            "end_cursor": page[-1].name if len(later) > size else None,
        }


class RoomMutations:
    """Mutations of rooms."""

    async def join_room(self, context: OperationContext, room: str, member: str) -> RoomNode:
        """Add an agent to a room; without `member`, the caller."""
        return RoomNode(await context.call(context.messages.join, room, member))

    async def leave_room(self, context: OperationContext, room: str, member: str) -> RoomNode:
        """Remove an agent from a room; without `member`, the caller."""
        return RoomNode(await context.call(context.messages.leave, room, member))
