"""Rooms: their type, queries and mutations."""

from datetime import datetime

from trunkline.messages.store import EnvelopeFilter, Room
from trunkline_bridge.api.graphql.context import DEFAULT_PAGE_SIZE, Info, to_time
from trunkline_bridge.api.graphql.declarations import field, object_type
from trunkline_bridge.api.graphql.messages import MessageNodePage


@object_type(name="Room")
class RoomNode:
    """A room, with the agents and users in it. It exists from its first member on."""

    name: str
    members: list[str]
    create_time: datetime | None

    @staticmethod
    def build(room: Room) -> "RoomNode":
        """Return a room."""
        return RoomNode(
            name=room.name, members=list(room.members), create_time=to_time(room.create_time)
        )

    @field
    async def history(
        self, info: Info, first: int = DEFAULT_PAGE_SIZE, after: str | None = None
    ) -> MessageNodePage:
        """Return the messages of the room, newest first."""
        return await MessageNodePage.read(info, EnvelopeFilter(room=self.name), first, after)


@object_type(name="RoomPage")
class RoomPage:
    """A page of rooms by name. `endCursor` is the `after` of the next page, if any."""

    nodes: list[RoomNode]
    end_cursor: str | None


@object_type(name="RoomQueries")
class RoomQueries:
    """Queries of rooms."""

    @field
    async def room(self, info: Info, name: str) -> RoomNode:
        """Return a room. A room without members is empty."""
        context = info.context
        room = await context.call(context.messages.get_room, name)
        return RoomNode.build(room)

    @field
    async def rooms(
        self, info: Info, first: int = DEFAULT_PAGE_SIZE, after: str | None = None
    ) -> RoomPage:
        """Return the rooms of the account, sorted by name."""
        context = info.context
        size = context.check_page_size(first)
        rooms = await context.call(context.messages.list_rooms)
        later = [room for room in rooms if room.name > (after or "")]
        page = later[:size]
        has_more = len(later) > size
        return RoomPage(
            nodes=[RoomNode.build(room) for room in page],
            end_cursor=page[-1].name if has_more else None,
        )


@object_type(name="RoomMutations")
class RoomMutations:
    """Mutations of rooms."""

    @field
    async def join_room(self, info: Info, room: str, member: str = "") -> RoomNode:
        """Add an agent to a room; without `member`, the caller."""
        context = info.context
        joined = await context.call(context.messages.join, room, member)
        return RoomNode.build(joined)

    @field
    async def leave_room(self, info: Info, room: str, member: str = "") -> RoomNode:
        """Remove an agent from a room; without `member`, the caller."""
        context = info.context
        left = await context.call(context.messages.leave, room, member)
        return RoomNode.build(left)
