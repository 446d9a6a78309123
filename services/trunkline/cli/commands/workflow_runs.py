"""The commands of `trunkline workflow` that run workflows, and choose their versions."""

from typing import Annotated

import typer

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.cli.exits import run
from trunkline.cli.options import (
    AccountOption,
    ApiKeyOption,
    DataOption,
    JsonOption,
    MeshOption,
    TaskIdArgument,
    UrlOption,
    resolve_api_key,
)

_WorkflowName = Annotated[
    str, typer.Argument(metavar="NAME", help="Of the workflow.", show_default=False)
]
_Input = Annotated[
    str, typer.Argument(metavar="[INPUT]", help="A text, or JSON.", show_default=False)
]


def run_workflow(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME",
            help="A workflow of the mesh by its name, or a file, which gets a temporary mesh.",
            show_default=False,
        ),
    ],
    text: _Input = "",
    *,
    url: UrlOption = None,
    key: ApiKeyOption = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", min=0.001, help="End the task after S seconds.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a workflow and stream its answer. Exits 0 only if the task completed."""
    from trunkline.cli import workflow_runs as command

    run(
        command.run_workflow(
            target, text, url=url, api_key=resolve_api_key(key), timeout_s=timeout, as_json=json
        )
    )


def start(
    name: _WorkflowName,
    text: _Input = "",
    *,
    url: UrlOption = None,
    key: ApiKeyOption = None,
    json: JsonOption = False,
) -> None:
    """Start a workflow of the mesh, and print the id of its task without waiting for the end."""
    from trunkline.cli import workflow_runs as command

    run(command.start_workflow(name, text, url=url, api_key=resolve_api_key(key), as_json=json))


def list_workflows(data: DataOption = None, *, json: JsonOption = False) -> None:
    """List the published workflows of a data directory, and the versions that new tasks take."""
    from trunkline.cli import workflow_runs as command

    run(command.list_workflows(data, as_json=json))


def versions(name: _WorkflowName, data: DataOption = None, *, json: JsonOption = False) -> None:
    """List the versions of a workflow; `*` marks the one that new tasks take."""
    from trunkline.cli import workflow_runs as command

    run(command.list_versions(name, data, as_json=json))


def rollback(
    name: _WorkflowName,
    version: Annotated[
        int | None,
        typer.Argument(
            metavar="[VERSION]", help="[the one before the current]", show_default=False
        ),
    ] = None,
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Let new tasks take another version, until a newer one is published."""
    from trunkline.cli import workflow_runs as command

    run(command.roll_back(name, version, data, as_json=json))


def pause(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Pause a task: running nodes finish, and no further node begins."""
    from trunkline.cli import workflow_runs as command

    run(command.pause(task_id, mesh, account=account, as_json=json))


def resume(
    task_id: TaskIdArgument,
    mesh: MeshOption = None,
    *,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Resume a paused task."""
    from trunkline.cli import workflow_runs as command

    run(command.resume(task_id, mesh, account=account, as_json=json))


def add_commands(group: typer.Typer) -> None:
    """Add the commands to the group."""
    group.command("run")(run_workflow)
    group.command("start")(start)
    group.command("list")(list_workflows)
    group.command("versions")(versions)
    group.command("rollback")(rollback)
    group.command("pause")(pause)
    group.command("resume")(resume)
