"""The commands for the identity of processes on a mesh."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from trunkline.cli.declaration import command
from trunkline.cli.options import (
    AUDIT_SETTINGS,
    JsonOption,
    MeshOption,
    argument,
    flag,
    option,
    resolve_mesh_settings,
)
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.core.durations import parse_duration
from trunkline.core.identity import Identity, JoinRecords, Role, identity_folder, load_credentials
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.network import parse_authority
from trunkline.core.settings import HostPort, MeshAddress, Settings
from trunkline.errors import ConfigurationError, InvalidArgumentError

_DOTS_OF_TOKEN = 2

group = typer.Typer()

_LONGEST: Final = timedelta(days=30)


@command(group, "token")
def create_token(
    mesh: MeshOption = None,
    *,
    agent: Annotated[
        list[str] | None, option("NAME", "An agent that the process may serve; repeatable.")
    ] = None,
    bridge: Annotated[bool, flag("The process is a bridge.", "--bridge")] = False,
    tools: Annotated[bool, flag("The process serves tools.", "--tools")] = False,
    member: Annotated[
        bool, flag("Processes of your own on another machine, which may do everything.", "--member")
    ] = False,
    uses: Annotated[
        int, option(None, "How many may join.", min=1, max=10_000, show_default=True)
    ] = 1,
    lifetime: Annotated[
        str, option("TIME", "Valid for this long: 30m, 12h, 7d.", "--for", show_default=True)
    ] = "1h",
    address: Annotated[str, option("HOST[:PORT]", "Where others reach the mesh.")] = "",
    json: JsonOption = False,
) -> None:
    """Make a token by which processes of another user or machine join a mesh that you run."""
    from trunkline.core.identity import tokens
    from trunkline.core.identity.issuing import load_authority

    chosen = {Role.BRIDGE: bridge, Role.TOOLS: tools, Role.MEMBER: member}
    roles = [role for role, is_chosen in chosen.items() if is_chosen]
    settings = resolve_mesh_settings(mesh)
    folder = open_own_folder(settings)
    if folder.is_temporary:
        problem = (
            "has a picked port, which is another after a restart; start it with --mesh HOST:PORT"
        )
        raise ConfigurationError(f"mesh {settings.mesh}", problem)
    authority = load_authority(folder)
    identity = choose_identity(authority.mesh, agent or (), roles)
    expires_in = parse_lifetime(lifetime)
    outside, join_addresses = find_join_addresses(
        settings.mesh, address, folder.read_join_addresses()
    )
    token = tokens.create_token(
        authority,
        identity,
        mesh=outside,
        join_addresses=join_addresses,
        lifetime=expires_in,
        uses=uses,
    )
    if json:
        print_json({"token": token, "identity": str(identity), "uses": uses})
    else:
        print(token)
        print_stderr(
            f"its holder can join as {identity.describe()} within {lifetime}, "
            f"{'once' if uses == 1 else f'{uses} times'}: trunkline mesh join TOKEN"
        )


@command(group, "join")
def join_mesh(
    token: Annotated[
        str,
        argument("TOKEN", "From `trunkline mesh token`; - reads it from stdin.", show_default=True),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Join a mesh that another user or machine runs. Then your processes may serve and call."""
    from trunkline.core.identity.joining import join
    from trunkline.core.identity.tokens import read_token

    if token == "-":  # noqa: S105  standard input
        token = sys.stdin.readline().strip()

    settings = resolve_mesh_settings(mesh)
    if mesh is None:
        settings = replace(settings, mesh=MeshAddress.parse(read_token(token).mesh))
    folder = identity_folder(settings)
    folder.check()
    join(folder, token)
    if json:
        print_json({"mesh": str(settings.mesh), "folder": str(folder.path)})
    else:
        print_stderr(
            f"joined; processes with --mesh {settings.mesh} are on it. Its identity is in "
            f"{folder.path} and renews itself while one of them runs"
        )


@command(group, "revoke")
async def revoke_processes(
    names: Annotated[
        list[str],
        argument(
            "NAME...",
            "A role and agents, such as agents/math, a name of `mesh show`, or a token.",
            show_default=True,
        ),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Withdraw what a token gave. The mesh ends the processes' calls and accepts no new ones."""
    from trunkline.core.identity.issuing import load_authority
    from trunkline.core.identity.tokens import verify_token

    settings = resolve_mesh_settings(mesh, uses={"store"})
    folder = open_own_folder(settings)
    tokens = [name for name in names if name.count(".") == _DOTS_OF_TOKEN]
    async with open_join_records(settings) as records:
        for token in tokens:
            await records.revoke_token(verify_token(load_authority(folder), token))
        processes = await records.revoke([name for name in names if name not in tokens])
        joined = await records.list_joined()
    if not (tokens or processes):
        known = ", ".join(f"{process.subject} {process.instance}" for process in joined)
        problem = f"no such process; these have joined: {known or 'none'}"
        raise InvalidArgumentError(" ".join(names), problem)
    if json:
        print_json({"revoked": [process.instance for process in processes], "tokens": len(tokens)})
    else:
        for process in processes:
            print_stderr(f"revoked {process.subject} {process.instance}")
        if tokens:
            print_stderr("revoked the token" if len(tokens) == 1 else "revoked the tokens")


@command(group, "release")
async def release_journals(
    names: Annotated[
        list[str],
        argument(
            "NAME...",
            "The id of a journal, or a role and agents, such as agents/math: all of theirs.",
            show_default=True,
        ),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Free journals whose owner is gone. The next process that registers one owns it."""
    from trunkline.cli.directory import open_directory

    async with open_directory(mesh) as directory:
        released = await directory.release_journals(names)
    if not released:
        problem = "no journal has such an id or owner; the process that was refused logs both"
        raise InvalidArgumentError(" ".join(names), problem)
    if json:
        print_json({"released": released})
    else:
        for journal_id in released:
            print_stderr(f"released {journal_id}")


@command(group, "rotate-root")
def rotate_root(
    mesh: MeshOption = None,
    *,
    overlap: Annotated[
        str,
        option(
            "TIME",
            "Until the next root issues: 1d, 1h. Processes that don't renew in it join again.",
            show_default=True,
        ),
    ] = "1d",
    json: JsonOption = False,
) -> None:
    """Replace the root of a mesh that you run, while its processes run and renew."""
    from trunkline.cli.audit import record_act
    from trunkline.core.identity.rotation import start_rotation
    from trunkline.observe.audit import Action

    settings = resolve_mesh_settings(mesh, uses=AUDIT_SETTINGS)
    rotation = start_rotation(open_own_folder(settings), parse_lifetime(overlap))
    record_act(settings, Action.ROOT_ROTATE, mesh=str(settings.mesh))
    times = {
        name: datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
        for name, time in asdict(rotation).items()
    }
    if json:
        print_json(times)
    else:
        print_stderr(
            f"the next root issues certificates from {times['switch_at']}, and the former one is "
            f"trusted until {times['drop_at']}; processes that run renew by themselves"
        )


@command(group, "show")
async def show_identity(mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """Show your identity on a mesh, and who has joined the mesh."""
    settings = resolve_mesh_settings(mesh, uses={"store"})
    credentials = load_credentials(settings)
    async with open_join_records(settings) as records:
        joined = await records.list_joined()
    facts = {
        "mesh": str(settings.mesh),
        "identity": str(credentials.identity),
        "ends": credentials.ends_at.isoformat(timespec="seconds"),
        "file": str(credentials.certificate_file),
    }
    if json:
        print_json({**facts, "joined": [asdict(process) for process in joined]})
    else:
        print("\n".join(f"{name:<10}{value}" for name, value in facts.items()))
        for process in joined:
            state = "  revoked" if process.is_revoked else ""
            print(f"{'joined':<10}{process.subject}  {process.instance}{state}")


@asynccontextmanager
async def open_join_records(settings: Settings) -> AsyncIterator[JoinRecords]:
    """Yield the records of processes that joined, as the registry of the mesh has them."""
    from trunkline.processes import database

    async with database.open_database(settings, waits=False) as opened:
        yield await database.open_join_records(settings, opened)


def open_own_folder(settings: Settings) -> IdentityFolder:
    """Return the folder of a mesh that this user runs. ConfigurationError: another one does."""
    folder = identity_folder(settings)
    folder.check()
    if not folder.has_root:
        problem = "another user or machine runs it, or it never ran; run this command there"
        raise ConfigurationError(f"mesh {settings.mesh}", problem)
    return folder


def choose_identity(mesh: str, agents: Sequence[str], roles: Sequence[Role]) -> Identity:
    """Return the identity for agents or a role.

    Raises:
        InvalidArgumentError: there are neither, or several.
    """
    if bool(agents) + len(roles) != 1:
        problem = "name the agents of the process by --agent, or give one of the other roles"
        raise InvalidArgumentError("token", problem)
    if roles:
        return Identity(mesh, roles[0])
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


def find_join_addresses(
    mesh: MeshAddress, outside: str, served: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """Return the address by which others reach the mesh, and those at which it takes tokens.

    `outside` is as in `find_join_address`, and `served` is where registries of this machine take
    tokens. If other machines have registries, these take tokens at the same port.

    Raises:
        ConfigurationError: the mesh takes no tokens.
        InvalidArgumentError: the host must be named, or is malformed.
    """
    if len(mesh.registries) == 1 or not served:
        host, port = find_join_address(outside, served[0] if served else "")
        return str(HostPort(host, mesh.first.port)), [str(HostPort(host, port))]
    if outside:
        problem = "names one host; a mesh with several registries is reached by those in `mesh`"
        raise InvalidArgumentError("--address", problem)
    if all(each.is_loopback for each in mesh.registries):
        return str(mesh), served
    port = HostPort.parse(served[0]).port
    return str(mesh), [str(HostPort(each.host, port)) for each in mesh.registries]


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
