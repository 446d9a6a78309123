"""Workflows as commands read, validate and draw them, and the versions of a data directory."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from trunkline.cli.directory import open_directory
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.core.json_values import struct_json
from trunkline.core.source_documents import Fault
from trunkline.core.task_states import TERMINAL, is_paused, state_name
from trunkline.errors import ConfigurationError, CursorExpiredError, InvalidArgumentError
from trunkline.journal.batches import parse_batch
from trunkline.mesh.client import HostClient
from trunkline.mesh.client.host_queries import fetch_task
from trunkline.mesh.client.run_paths import find_failed, find_path, find_version, list_visited
from trunkline.mesh.client.services import TOOL_SERVERS_TIMEOUT_S
from trunkline.processes.database import open_small_files
from trunkline.supervisor.plan_export import export_plan, format_node_id, has_files
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline.workflows.definition import Workflow
from trunkline.workflows.drawing import RunPath
from trunkline.workflows.loading import SUFFIXES
from trunkline.workflows.plugins import list_plugin_names, load_workflow_plugin
from trunkline.workflows.validation import (
    MeshNames,
    Validation,
    load_workflow,
    validate_file,
)
from trunkline.workflows.versions import WorkflowVersions


def validate(file: Path, names: MeshNames) -> Validation:
    """Validate a file. One that can't be read has that as its fault."""
    try:
        return validate_file(file, names)
    except ConfigurationError as error:
        return Validation(None, (Fault(str(file), 1, 1, "", error.problem),))


def load_source(source: str | Path) -> Workflow:
    """Read a workflow, of a file or an installed one by its name. Raises as `load_workflow`."""
    plugin = load_workflow_plugin(str(source))
    return load_workflow(source if plugin is None else plugin.file)


def is_source(source: str) -> bool:
    """Return whether a source is a file or an installed workflow, and no name or task of a mesh."""
    path = Path(source)
    is_file = path.suffix in SUFFIXES or os.sep in source or path.exists()
    return is_file or source in list_plugin_names()


async def fetch_names(mesh: str | None, servers: frozenset[str]) -> MeshNames:
    """Return the names of agents and tools of a mesh. Workflows are agents of it.

    The command waits for the tools of `servers`. Tools of other servers are suggestions.
    """
    async with open_directory(mesh) as directory:
        agents = {agent.card.name for host in directory.hosts for agent in host.agents}
        client = directory.tool_client()
        if servers:
            await client.wait_for_tools(tuple(servers), timeout_s=TOOL_SERVERS_TIMEOUT_S)
        listing = await client.list_known_tools()
        tools: dict[str, Any] = {
            f"{tool.server}/{tool.name}": struct_json(tool.input_schema) for tool in listing.tools
        }
    return MeshNames(frozenset(agents), tools, dict.fromkeys(agents))


def print_validation(name: str, validation: Validation) -> None:
    """Print the faults of a file, or that it has none."""
    for fault in validation.faults:
        print(fault)
    if validation.workflow is not None:
        print(f"ok  {name}")
    if validation.unchecked:
        print_stderr(
            f"{name}: names of {', '.join(validation.unchecked)} were not checked; "
            "give --mesh to check them"
        )


def to_fields(validation: Validation) -> dict[str, Any]:
    """Return what a validation found as JSON."""
    return {
        "valid": validation.workflow is not None,
        "faults": [
            {
                "line": fault.line,
                "column": fault.column,
                "where": fault.where,
                "problem": fault.problem,
            }
            for fault in validation.faults
        ],
        "unchecked": list(validation.unchecked),
    }


async def read_plan(task_id: str, name: str, mesh: str | None, account: str) -> Workflow:
    """Return the plan of a supervisor's task as a workflow.

    Raises:
        InvalidArgumentError: the task has no plan of a supervisor.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    async with open_directory(mesh) as directory:
        snapshot = await fetch_task(directory, task_id, account=account)
    workflow = export_plan(snapshot, name)
    if has_files(snapshot):
        print_stderr(f"{task_id}: the files of its request are not part of the workflow")
    return workflow


def check_path(workflow: Workflow, path: RunPath) -> None:
    """Check that a workflow has the nodes of a path. InvalidArgumentError: one is missing."""
    known = {node.id for node in workflow.nodes}
    for option, names in (("--visited", path.visited), ("--failed", [path.failed])):
        unknown = [name for name in names if name and name not in known]
        if unknown:
            raise InvalidArgumentError(option, f"the workflow has no node {unknown[0]!r}")


async def read_published(
    source: str, path: RunPath, *, data: Path | None, mesh: str | None, account: str
) -> tuple[Workflow, RunPath]:
    """Return a published workflow with `path`, or the workflow of a task with its own path.

    Raises:
        ConfigurationError: the workflow of the task is not published here.
        InvalidArgumentError: the task has no plan, or `path` is for a task.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    async with open_versions(data) as versions:
        if source in await versions.list_names():
            return await versions.load(source, await versions.current(source)), path
        if path.visited or path.failed:
            problem = "is for files and names; a task has the path of its run"
            raise InvalidArgumentError("--visited" if path.visited else "--failed", problem)
        return await read_run(source, versions, mesh, account)


async def read_run(
    task_id: str, versions: WorkflowVersions, mesh: str | None, account: str
) -> tuple[Workflow, RunPath]:
    """Return the workflow of a task, in the version of its run, and the run's path.

    Raises:
        ConfigurationError: the workflow is not in the data directory.
        InvalidArgumentError: the task has no plan.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    async with open_directory(mesh) as directory:
        client = directory.client_for_task(task_id)
        snapshot = await client.get_task(task_id, account=account)
        version = find_version(snapshot)
        if version is None:
            return export_plan(snapshot), _find_plan_path(snapshot)
        try:
            workflow = await versions.load(snapshot.agent, version)
        except ConfigurationError as error:
            problem = f"{error.problem}; name the data directory of its mesh with --data"
            raise ConfigurationError(f"workflow {snapshot.agent!r}", problem) from error
        path = find_path([pair async for pair in _read_events(client, task_id, account)])
    return workflow, RunPath(list_visited(path), find_failed(path))


def _find_plan_path(snapshot: snapshot_pb2.TaskSnapshot) -> RunPath:
    """Return the steps of a supervisor's plan that have ended, by the children that ran them."""
    visited, failed = [], ""
    for child in snapshot.children:
        if child.HasField("finished") and child.finished.state in TERMINAL:
            visited.append(format_node_id(child.started.step_id))
            if child.finished.state != task_pb2.TASK_STATE_COMPLETED:
                failed = visited[-1]
    known = {format_node_id(step.step_id) for plan in snapshot.plans[-1:] for step in plan.steps}
    return RunPath([node for node in visited if node in known], failed if failed in known else "")


async def _read_events(
    client: HostClient, task_id: str, account: str
) -> AsyncIterator[tuple[event_pb2.BatchHeader, event_pb2.Event]]:
    try:
        async with client.watch_task(
            task_id, account=account, after=0, with_snapshot=False, until_head=True
        ) as stream:
            async for sealed_batches in stream:
                for sealed in sealed_batches:
                    batch = parse_batch(sealed)
                    for event in batch.events:
                        yield batch.header, event
    except CursorExpiredError:
        print_stderr(f"{task_id}: its single events are gone (`compact_after_s`), so its path is")


def print_state(snapshot: snapshot_pb2.TaskSnapshot, *, as_json: bool) -> None:
    """Print the state of a task, and whether it is paused."""
    task = snapshot.task
    paused = is_paused(task.metadata)
    state = state_name(task.status.state)
    if as_json:
        print_json({"task_id": task.id, "state": state, "paused": paused})
    else:
        print(f"{task.id} {state}{', paused' if paused else ''}")


@asynccontextmanager
async def open_versions(data_dir: Path | None) -> AsyncIterator[WorkflowVersions]:
    """Yield the versions of the workflows in the database of the settings or a data directory."""
    settings = load_command_settings({"data_dir": data_dir}, uses={"data_dir", "store"})
    async with open_small_files(settings) as files:
        yield WorkflowVersions(files)
