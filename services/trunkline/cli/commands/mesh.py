"""The commands for the identity of processes on a mesh."""

from typing import Annotated

import typer

from trunkline.cli.exits import finish, run
from trunkline.cli.options import JsonOption, MeshOption
from trunkline.errors import InvalidArgumentError

mesh = typer.Typer(help="Let other users and machines join a mesh.", rich_markup_mode=None)


@mesh.command("token")
def create_token(
    mesh: MeshOption = None,
    *,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="An agent that the process may serve; repeatable.",
            show_default=False,
        ),
    ] = None,
    bridge: Annotated[bool, typer.Option("--bridge", help="The process is a bridge.")] = False,
    tools: Annotated[bool, typer.Option("--tools", help="The process serves tools.")] = False,
    uses: Annotated[int, typer.Option(min=1, max=10_000, help="How many may join.")] = 1,
    lifetime: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Valid for this long: 30m, 12h, 7d.")
    ] = "1h",
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST[:PORT]", help="Where others reach the mesh.", show_default=False
        ),
    ] = "",
    json: JsonOption = False,
) -> None:
    """Make a token by which a process of another user or machine joins a mesh that you run."""
    from trunkline.cli import mesh_identity as command

    def create() -> int:
        if bridge and tools:
            raise InvalidArgumentError("token", "a process is a bridge or serves tools, not both")
        role = "bridge" if bridge else "tools" if tools else ""
        return command.create_token(
            mesh,
            agents=agent or (),
            role=role,
            uses=uses,
            lifetime=lifetime,
            address=address,
            as_json=json,
        )

    finish(create)


@mesh.command("join")
def join_mesh(
    token: Annotated[
        str,
        typer.Argument(metavar="TOKEN", help="From `trunkline mesh token`; - reads it from stdin."),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Join a mesh that another user or machine runs. Then your processes may serve and call."""
    from trunkline.cli import mesh_identity as command

    finish(lambda: command.join_mesh(token, mesh, as_json=json))


@mesh.command("revoke")
def revoke_processes(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="A role and agents, such as agents/math, a name of `mesh show`, or a token.",
        ),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Withdraw what a token gave. The mesh ends the processes' calls and accepts no new ones."""
    from trunkline.cli import mesh_identity as command

    finish(lambda: command.revoke_processes(names, mesh, as_json=json))


@mesh.command("release")
def release_journals(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="The id of a journal, or a role and agents, such as agents/math: all of theirs.",
        ),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Free journals whose owner is gone. The next process that registers one owns it."""
    from trunkline.cli import mesh_identity as command

    run(command.release_journals(names, mesh, as_json=json))


@mesh.command("rotate-root")
def rotate_root(
    mesh: MeshOption = None,
    *,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Until the next root issues: 1d, 1h. Processes that don't renew in it join again.",
        ),
    ] = "1d",
    json: JsonOption = False,
) -> None:
    """Replace the root of a mesh that you run, while its processes run and renew."""
    from trunkline.cli import mesh_identity as command

    finish(lambda: command.rotate_root(mesh, overlap=overlap, as_json=json))


@mesh.command("show")
def show_identity(mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """Show your identity on a mesh, and who has joined the mesh."""
    from trunkline.cli import mesh_identity as command

    finish(lambda: command.show_identity(mesh, as_json=json))
