"""The commands for workflows: validate and diff files; show and export files and tasks."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.cli.exits import finish
from trunkline.cli.options import AccountOption, DataOption, JsonOption, MeshOption

workflow = typer.Typer(
    help="Validate, draw, run and pause workflows, and choose their versions.",
    rich_markup_mode=None,
)

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A workflow, YAML or JSON.", show_default=False)
]


@workflow.command("validate")
def validate_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Workflows, YAML or JSON.", show_default=False),
    ],
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Validate workflow files; print all faults with their lines. Exits 1 if there are any.

    With --mesh, also check the names of agents, tools and workflows.
    """
    from trunkline.cli import workflow_files as command

    finish(lambda: command.validate_files(files, mesh, as_json=json))


@workflow.command("show")
def show_workflow(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME|TASK",
            help="A workflow, YAML or JSON; a published one by its name; or a task of the mesh.",
            show_default=False,
        ),
    ],
    *,
    svg: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write an SVG there.", show_default=False)
    ] = None,
    visited: Annotated[
        str, typer.Option(metavar="ID,ID", help="Mark these nodes as the path of a run.")
    ] = "",
    failed: Annotated[str, typer.Option(metavar="ID", help="Mark this node as failed.")] = "",
    mesh: MeshOption = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    data: DataOption = None,
) -> None:
    """Draw a workflow as Mermaid text, or as an SVG; a task with the path of its run."""
    from trunkline.cli import workflow_drawing as command

    path = [name for name in visited.split(",") if name]
    origin = command.Origin(mesh, account, data)
    finish(lambda: command.show_workflow(source, svg, path, failed, origin))


@workflow.command("diff")
def diff_files(old: FileArgument, new: FileArgument, *, json: JsonOption = False) -> None:
    """Show the differences of two versions. Exits 1 if there are any."""
    from trunkline.cli import workflow_files as command

    finish(lambda: command.diff_files(old, new, as_json=json))


@workflow.command("export")
def export_workflow(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|TASK",
            help="A workflow file, or a task of a supervisor, whose plan becomes a workflow.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write it there.", show_default=False),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the workflow of a plan. [plan-TASK]")
    ] = "",
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="yaml or json. [by OUT, or yaml]"),
    ] = None,
    mesh: MeshOption = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
) -> None:
    """Write a workflow, or the plan of a supervisor's task, as YAML or JSON."""
    from trunkline.cli import workflow_export as command

    finish(
        lambda: command.export_workflow(
            source, output=output, file_format=file_format, name=name, mesh=mesh, account=account
        )
    )
