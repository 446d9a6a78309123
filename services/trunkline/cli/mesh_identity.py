"""`trunkline mesh`: join tokens, and this user's identity on a mesh."""

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from trunkline.audit import Action
from trunkline.cli.audit import USED_SETTINGS, record_act
from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.options import resolve_mesh_settings
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.identity import Identity, Role, identity_folder, load_credentials
from trunkline.identity.folder import IdentityFolder
from trunkline.identity.revocation import list_joined, revoke
from trunkline.network import parse_authority
from trunkline.settings import HostPort, Settings

_DURATION: Final = re.compile(r"(\d{1,6})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DOTS_OF_TOKEN: Final = 2
_LONGEST: Final = timedelta(days=30)


def create_token(
    mesh: str | None,
    *,
    agents: Sequence[str],
    role: str,
    uses: int,
    lifetime: str,
    address: str,
    as_json: bool,
) -> ExitCode:
    """Print a join token of a mesh that this user runs.

    Raises:
        ConfigurationError: another user runs the mesh, or it does not take tokens.
        InvalidArgumentError: an option is not valid.
    """
    # Imported here, because cryptography is slow to load.
    from trunkline.identity.issuing import load_authority
    from trunkline.identity.tokens import create_token

    settings = resolve_mesh_settings(mesh)
    folder = _open_own_folder(settings)
    if folder.is_temporary:
        problem = (
            "has a picked port, which is another after a restart; start it with --mesh HOST:PORT"
        )
        raise ConfigurationError(f"mesh {settings.mesh}", problem)
    authority = load_authority(folder)
    identity = _choose_identity(authority.mesh, agents, role)
    expires_in = _parse_duration(lifetime)
    host, join_port = _find_join_address(address, folder.read_join_address())
    token = create_token(
        authority,
        identity,
        mesh=str(HostPort(host, settings.mesh.port)),
        join_address=str(HostPort(host, join_port)),
        lifetime=expires_in,
        uses=uses,
    )
    if as_json:
        print_json({"token": token, "identity": str(identity), "uses": uses})
    else:
        print(token)
        print_stderr(
            f"its holder can join as {identity.describe()} within {lifetime}, "
            f"{'once' if uses == 1 else f'{uses} times'}: trunkline mesh join TOKEN"
        )
    return ExitCode.OK


def join_mesh(token: str, mesh: str | None, *, as_json: bool) -> ExitCode:
    """Join a mesh by a token.

    Raises:
        ConfigurationError: it is not a join token.
        UnauthenticatedError: the token has expired or is used up.
        PeerUnavailableError: the mesh does not answer.
    """
    from trunkline.identity.joining import join
    from trunkline.identity.tokens import read_token

    if token == "-":  # noqa: S105  standard input
        token = sys.stdin.readline().strip()

    settings = resolve_mesh_settings(mesh)
    if mesh is None:
        settings = replace(settings, mesh=HostPort.parse(read_token(token).mesh))
    folder = identity_folder(settings)
    folder.check()
    join(folder, token)
    if as_json:
        print_json({"mesh": str(settings.mesh), "folder": str(folder.path)})
    else:
        print_stderr(
            f"joined; processes with --mesh {settings.mesh} are on it. Its identity is in "
            f"{folder.path} and renews itself while one of them runs"
        )
    return ExitCode.OK


def show_identity(mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print this user's identity on a mesh, and the processes that joined it here.

    Raises:
        UnauthenticatedError: the user has none.
    """
    settings = resolve_mesh_settings(mesh)
    credentials = load_credentials(settings)
    joined = list_joined(identity_folder(settings))
    facts = {
        "mesh": str(settings.mesh),
        "identity": str(credentials.identity),
        "ends": credentials.ends_at.isoformat(timespec="seconds"),
        "file": str(credentials.certificate_file),
    }
    if as_json:
        print_json({**facts, "joined": [asdict(process) for process in joined]})
    else:
        print("\n".join(f"{name:<10}{value}" for name, value in facts.items()))
        for process in joined:
            state = "  revoked" if process.is_revoked else ""
            print(f"{'joined':<10}{process.subject}  {process.instance}{state}")
    return ExitCode.OK


def revoke_processes(names: Sequence[str], mesh: str | None, *, as_json: bool) -> ExitCode:
    """Revoke processes that joined a mesh that this user runs, and join tokens.

    Raises:
        ConfigurationError: another user runs the mesh.
        InvalidArgumentError: no such process has joined.
    """
    from trunkline.identity.issuing import load_authority
    from trunkline.identity.tokens import revoke_token, verify_token

    folder = _open_own_folder(resolve_mesh_settings(mesh))
    tokens = [name for name in names if name.count(".") == _DOTS_OF_TOKEN]
    for token in tokens:
        revoke_token(folder, verify_token(load_authority(folder), token))
    processes = revoke(folder, [name for name in names if name not in tokens])
    if not (tokens or processes):
        known = ", ".join(
            f"{process.subject} {process.instance}" for process in list_joined(folder)
        )
        problem = f"no such process; these have joined: {known or 'none'}"
        raise InvalidArgumentError(" ".join(names), problem)
    if as_json:
        print_json({"revoked": [process.instance for process in processes], "tokens": len(tokens)})
    else:
        for process in processes:
            print_stderr(f"revoked {process.subject} {process.instance}")
        if tokens:
            print_stderr("revoked the token" if len(tokens) == 1 else "revoked the tokens")
    return ExitCode.OK


async def release_journals(names: Sequence[str], mesh: str | None, *, as_json: bool) -> ExitCode:
    """Free journals of a mesh that this user runs, by their ids or owners.

    Raises:
        InvalidArgumentError: no journal has such an id or owner.
        PermissionDeniedError: another user runs the mesh.
        PeerUnavailableError: the mesh does not answer.
    """
    async with open_mesh_view(mesh) as view:
        released = await view.registry_client().release_journals(names)
    if not released:
        problem = "no journal has such an id or owner; the process that was refused logs both"
        raise InvalidArgumentError(" ".join(names), problem)
    if as_json:
        print_json({"released": released})
    else:
        for journal_id in released:
            print_stderr(f"released {journal_id}")
    return ExitCode.OK


def rotate_root(mesh: str | None, *, overlap: str, as_json: bool) -> ExitCode:
    """Replace the root of a mesh that this user runs.

    Raises:
        ConfigurationError: another user runs the mesh, or its root is being replaced.
        InvalidArgumentError: the time is not valid.
    """
    from trunkline.identity.rotation import start_rotation

    settings = resolve_mesh_settings(mesh, uses=USED_SETTINGS)
    rotation = start_rotation(_open_own_folder(settings), _parse_duration(overlap))
    record_act(settings, Action.ROOT_ROTATE, mesh=str(settings.mesh))
    times = {
        name: datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
        for name, time in asdict(rotation).items()
    }
    if as_json:
        print_json(times)
    else:
        print_stderr(
            f"the next root issues certificates from {times['switch_at']}, and the former one is "
            f"trusted until {times['drop_at']}; processes that run renew by themselves"
        )
    return ExitCode.OK


def _open_own_folder(settings: Settings) -> IdentityFolder:
    """Return the folder of a mesh that this user runs. ConfigurationError: another one does."""
    folder = identity_folder(settings)
    folder.check()
    if not folder.has_root:
        problem = "another user or machine runs it, or it never ran; run this command there"
        raise ConfigurationError(f"mesh {settings.mesh}", problem)
    return folder


def _choose_identity(mesh: str, agents: Sequence[str], role: str) -> Identity:
    if bool(agents) == bool(role):
        problem = "name the agents of the process by --agent, or give --bridge or --tools"
        raise InvalidArgumentError("token", problem)
    if role:
        return Identity(mesh, Role(role))
    try:
        return Identity.for_agents(mesh, agents)
    except ValueError as error:
        raise InvalidArgumentError("--agent", str(error)) from error


def _parse_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidArgumentError("TIME", f"{text!r} is no time like 30m, 12h or 7d")
    duration = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if not timedelta() < duration <= _LONGEST:
        raise InvalidArgumentError("TIME", "must be 30 days at most")
    return duration


def _find_join_address(outside: str, served: str) -> tuple[str, int]:
    """Return the host by which others reach the mesh, and the port that takes tokens.

    `outside` is HOST or HOST:PORT, or empty: then the host is the one that is served.

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
