"""What the commands for the identity on a mesh parse and find."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from trunkline.core.durations import parse_duration
from trunkline.core.identity import Identity, Role, identity_folder
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.network import parse_authority
from trunkline.core.settings import HostPort, Settings
from trunkline.errors import ConfigurationError, InvalidArgumentError

_LONGEST: Final = timedelta(days=30)


def open_own_folder(settings: Settings) -> IdentityFolder:
    """Return the folder of a mesh that this user runs. ConfigurationError: another one does."""
    folder = identity_folder(settings)
    folder.check()
    if not folder.has_root:
        problem = "another user or machine runs it, or it never ran; run this command there"
        raise ConfigurationError(f"mesh {settings.mesh}", problem)
    return folder


def choose_identity(mesh: str, agents: Sequence[str], role: str) -> Identity:
    """Return the identity for agents or a role. InvalidArgumentError: there is none, or both."""
    if bool(agents) == bool(role):
        problem = "name the agents of the process by --agent, or give --bridge or --tools"
        raise InvalidArgumentError("token", problem)
    if role:
        return Identity(mesh, Role(role))
    try:
        return Identity.for_agents(mesh, agents)
    except ValueError as error:
        raise InvalidArgumentError("--agent", str(error)) from error


def parse_lifetime(text: str) -> timedelta:
    """Return a duration such as `30m`, of 30 days at most. InvalidArgumentError: it is none."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        problem = f"{text!r} is no time like 30m, 12h or 7d"
        raise InvalidArgumentError("TIME", problem) from None
    if not 0 < seconds <= _LONGEST.total_seconds():
        raise InvalidArgumentError("TIME", "must be 30 days at most")
    return timedelta(seconds=seconds)


def find_join_address(outside: str, served: str) -> tuple[str, int]:
    """Return the host by which others reach the mesh, and the port that takes tokens.

    `outside` is HOST or HOST:PORT. If it is empty, the host is the served host.

    Raises:
        ConfigurationError: the mesh takes no tokens.
        InvalidArgumentError: the host must be named, or is malformed.
    """
    if not served:
        problem = (
            "takes no tokens; start it, and if other machines reach it, with `join = HOST:PORT`"
        )
        raise ConfigurationError("the mesh", problem)
    taken = HostPort.parse(served)
    if not outside:
        if taken.is_wildcard:
            problem = f"the mesh takes tokens at {served}; name the host that others reach it by"
            raise InvalidArgumentError("--address", problem)
        return taken.host, taken.port
    try:
        authority = parse_authority(outside)
    except ValueError as error:
        raise InvalidArgumentError("--address", str(error)) from error
    return authority.host, authority.port or taken.port
