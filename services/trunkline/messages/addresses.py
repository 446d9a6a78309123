"""The names of senders and recipients of messages."""

import re
from typing import Final

from trunkline.core.names import NAME_RULE, is_name
from trunkline.errors import ConfigurationError, InvalidArgumentError

ALL: Final = "all"
"""The recipient that stands for all agents but the sender."""
BROADCAST: Final = "broadcast"
"""The recipient that stands for the members and listeners of the message's room."""
RESERVED_NAMES: Final = frozenset({ALL, BROADCAST})
"""No agent can have these names."""
SERVICE: Final = "system:mesh"
"""The sender of notices of the messaging service."""
_RESERVED_PROBLEM: Final = "messages to this name go to all agents, or to a room; choose another"
_ROOM_PREFIX: Final = "room:"
_USER_PREFIX: Final = "user:"
_ROOM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_agent_name(name: str, where: str) -> None:
    """Check that an agent can have a name. `where` is the place of the name.

    Raises:
        ConfigurationError: it has other characters, is too long, or stands for several recipients.
    """
    if not is_name(name):
        raise ConfigurationError(where, f"a name is made of {NAME_RULE}")
    if name.lower() in RESERVED_NAMES:
        raise ConfigurationError(where, _RESERVED_PROBLEM)


def user_address(caller: str) -> str:
    """Return the name of a user as a sender or recipient."""
    return _USER_PREFIX + (caller or "anonymous")


def is_user(address: str) -> bool:
    """Return whether an address is of a user or of the messaging service, not of an agent."""
    return address.startswith((_USER_PREFIX, SERVICE))


def room_address(room: str) -> str:
    """Return the address of a room."""
    return _ROOM_PREFIX + room


def room_of(recipient: str, room: str) -> str | None:
    """Return the name of the room that a recipient means, or None for another recipient.

    Raises:
        InvalidArgumentError: the room has no valid name, or `broadcast` has no room.
    """
    if recipient.startswith(_ROOM_PREFIX):
        return check_room(recipient.removeprefix(_ROOM_PREFIX), field="recipient")
    if recipient == BROADCAST:
        if not room:
            raise InvalidArgumentError("room", "is missing; `broadcast` goes to a room")
        return check_room(room)
    return None


def check_room(room: str, *, field: str = "room") -> str:
    """Return the name of a room.

    Raises:
        InvalidArgumentError: it has other characters, or is too long.
    """
    if not _ROOM.fullmatch(room):
        problem = f"{room!r} is no name of a room; use up to 64 letters, digits, `.`, `_` and `-`"
        raise InvalidArgumentError(field, problem)
    return room
