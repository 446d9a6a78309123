"""`trunkline workflow export`: writes a workflow, or the plan of a supervisor's task, as a file."""

import asyncio
from pathlib import Path

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.terminal import print_stderr, write
from trunkline.cli.workflow_files import FORMATS, is_source, load_source
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.supervisor.plan_export import export_plan, has_files
from trunkline.workflows.builders import dump_workflow
from trunkline.workflows.definition import Workflow


def export_workflow(
    source: str,
    *,
    output: Path | None,
    file_format: str | None,
    name: str = "",
    mesh: str | None = None,
    account: str = "",
) -> ExitCode:
    """Write a workflow, or the plan of a task of the mesh, to `output` or to stdout.

    `source` is a file if it exists, is a path, or ends as a workflow file does; it may be the name
    of an installed workflow. Else it is a task.

    Raises:
        ConfigurationError: the file or the name has faults, or the output can't be written.
        InvalidArgumentError: there is no such format, or the task has no plan of a supervisor.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    is_json = output is not None and output.suffix == ".json"
    file_format = file_format or ("json" if is_json else "yaml")
    if file_format not in FORMATS:
        raise InvalidArgumentError("--format", f"{file_format!r} is none of: {', '.join(FORMATS)}")
    if is_source(source):
        if name:
            raise InvalidArgumentError("--name", "is for the plan of a task; a file has its name")
        workflow = load_source(source)
    else:
        workflow = asyncio.run(_read_plan(source, name, mesh, account))
    text = dump_workflow(workflow, file_format)
    if output is None:
        write(text)
        return ExitCode.OK
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(str(output), f"can't be written: {error.strerror}") from error
    print_stderr(f"wrote {output}")
    return ExitCode.OK


async def _read_plan(task_id: str, name: str, mesh: str | None, account: str) -> Workflow:
    async with open_mesh_view(mesh) as view:
        snapshot = await view.task_host_client(task_id).get_task(task_id, account=account)
    workflow = export_plan(snapshot, name)
    if has_files(snapshot):
        print_stderr(f"{task_id}: the files of its request are not part of the workflow")
    return workflow
