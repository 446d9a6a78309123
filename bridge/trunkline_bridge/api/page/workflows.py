"""The page's view of workflows: their versions as graphs, their differences and their runs."""

from collections.abc import Mapping
from typing import Final

from trunkline.a2a_wire.json_values import Json
from trunkline_bridge.api.page.access import PageAccess
from trunkline_bridge.api.page.binding import (
    API_PATH,
    Paths,
    read_number,
    read_object,
    read_page_size,
    read_text,
)
from trunkline_bridge.api.page.tasks import render_row
from trunkline_bridge.api.workflows.operations import WorkflowOperations, build_input
from trunkline_bridge.callers.caller import Caller

_PATH: Final = f"{API_PATH}/workflows"
# The input of a workflow without a schema: the text of the request.
_TEXT_INPUT: Final[Json] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}


class PageWorkflows:
    """Published workflows and their runs.

    Only operators choose the version of new tasks, because tasks of all accounts take it.
    """

    def __init__(self, operations: WorkflowOperations, access: PageAccess) -> None:
        self._operations = operations
        self._access = access

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        workflow = f"{_PATH}/{{name:segment}}"
        return {
            _PATH: {"GET": self._list_workflows},
            f"{workflow}:diff": {"GET": self._compare},
            f"{workflow}:start": {"POST": self._start},
            f"{workflow}:rollBack": {"POST": self._roll_back},
            f"{workflow}/runs": {"GET": self._list_runs},
            workflow: {"GET": self._get_workflow},
        }

    async def _list_workflows(
        self, caller: Caller, _params: Json, _path: Mapping[str, str]
    ) -> Json:
        names = await self._operations.list_workflows(caller)
        workflows = [await self._read(caller, name) for name in names]
        members = ("name", "description", "version", "versions")
        return {"workflows": [{key: found[key] for key in members} for found in workflows]}

    async def _get_workflow(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        return await self._read(caller, path["name"], read_number(params, "version") or None)

    async def _read(self, caller: Caller, name: str, version: int | None = None) -> Json:
        workflow = await self._operations.get_workflow(caller, name, version)
        versions = await self._operations.list_versions(caller, name)
        definition = workflow.definition
        others = {"name", "version", "description", "nodes", "edges", "inputs"}
        return {
            "name": name,
            "description": workflow.description,
            "version": workflow.version,
            "isCurrent": workflow.is_current,
            "versions": sorted(versions, reverse=True),
            "definition": {
                **{key: value for key, value in definition.items() if key not in others},
                "nodes": definition["nodes"],
                "edges": definition.get("edges", []),
            },
            "inputSchema": definition.get("inputs") or _TEXT_INPUT,
        }

    async def _compare(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Return the differences of two versions, by default the last two."""
        name = path["name"]
        new = await self._operations.get_workflow(caller, name, read_number(params, "to") or None)
        before = read_number(params, "from")
        if not before:
            versions = await self._operations.list_versions(caller, name)
            before = max((found for found in versions if found < new.version), default=new.version)
        old = await self._operations.get_workflow(caller, name, before)
        found = await self._operations.compare(caller, name, old.version, new.version)
        return {
            "from": old.version,
            "to": new.version,
            "text": "\n".join(found.lines),
            **found.graph,
        }

    async def _start(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Start a run; a request with the same `requestId` gets the run that it started."""
        inputs = params.get("inputs")
        if isinstance(inputs, str):
            parts = build_input(inputs, None)
        else:
            parts = build_input(None, read_object(params, "inputs") or {})
        started = await self._operations.start(
            caller,
            path["name"],
            parts,
            message_id=read_text(params, "requestId"),
            version=read_number(params, "version") or None,
        )
        return {"taskId": started.task.id}

    async def _roll_back(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Choose the version of new tasks, by default the one before the current."""
        self._access.require_operator(caller)
        version = read_number(params, "version") or None
        await self._operations.roll_back(caller, path["name"], version)
        return await self._read(caller, path["name"])

    async def _list_runs(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        runs, next_page_token = await self._operations.list_run_rows(
            caller,
            path["name"],
            page_size=read_page_size(params),
            page_token=read_text(params, "pageToken"),
        )
        tasks = [{**render_row(run.row), "workflowVersion": run.version} for run in runs]
        return {"tasks": tasks, "nextPageToken": next_page_token}
