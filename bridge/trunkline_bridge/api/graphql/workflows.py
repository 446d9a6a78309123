"""Workflows: their queries, mutations, and the subscription to the events of a run."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import FORBIDDEN, WireError
from trunkline.v1 import task_pb2
from trunkline_bridge.api.graphql.context import OperationContext
from trunkline_bridge.api.graphql.runs import RunNode, parse_cursor, render_event
from trunkline_bridge.api.workflows.catalog import PublishedWorkflow
from trunkline_bridge.api.workflows.operations import build_input

# This is also the limit of pages of tasks.
_MAX_RUNS: Final = 100


class WorkflowVersionNode:
    """A version of a workflow."""

    def __init__(self, workflow: PublishedWorkflow) -> None:
        self.name = workflow.name
        self.version = workflow.version
        self.is_current = workflow.is_current
        self.description = workflow.description
        self.definition = dict(workflow.definition)

    async def versions(self, context: OperationContext) -> list[int]:
        """Return the numbers of all versions, newest first."""
        numbers = await context.call(context.workflows.list_versions, self.name)
        return sorted(numbers, reverse=True)

    async def drawing(self, context: OperationContext) -> str:
        """Return the workflow as Mermaid text."""
        return await context.call(context.workflows.draw, self.name, self.version)

    async def runs(
        self,
        context: OperationContext,
        state: task_pb2.TaskState.ValueType | None,
        first: int,
        after: str | None,
    ) -> dict[str, Any]:
        """Return the runs of all its versions, the latest change first."""
        return await _read_runs(context, self.name, state, first, after)


class WorkflowQueries:
    """Queries of workflows and runs."""

    async def workflow(
        self, context: OperationContext, name: str, version: int | None
    ) -> WorkflowVersionNode:
        """Return a published workflow, by default in the version that new tasks take."""
        return await _read_workflow(context, name, version)

    async def workflows(
        self, context: OperationContext, first: int, after: str | None
    ) -> dict[str, Any]:
        """Return the published workflows that the caller may use, sorted by name."""
        size = context.check_page_size(first)
        names = await context.call(context.workflows.list_workflows)
        later = [name for name in names if name > (after or "")]
        page = later[:size]
        return {
            "nodes": [await _read_workflow(context, name) for name in page],
            "end_cursor": page[-1] if len(later) > size else None,
        }

    async def run(self, context: OperationContext, id: str) -> RunNode:  # noqa: A002
        """Return a run."""
        return RunNode.of_snapshot(await context.call(context.workflows.get_run, id))

    async def runs(
        self,
        context: OperationContext,
        workflow: str,
        state: task_pb2.TaskState.ValueType | None,
        first: int,
        after: str | None,
    ) -> dict[str, Any]:
        """Return the runs of a workflow, the latest change first."""
        return await _read_runs(context, workflow, state, first, after)


class WorkflowMutations:
    """Mutations of runs, and of the versions of workflows."""

    async def start_workflow(
        self,
        context: OperationContext,
        name: str,
        text: str | None,
        data: object,
        version: int | None,
        request_id: str,
    ) -> RunNode:
        """Start a workflow with a text or an object, without waiting for its end; return the run.

        Authenticated callers that repeat a request id get the run that it started.
        """
        found = await context.call(
            context.workflows.start,
            name,
            build_input(text, data),
            message_id=request_id,
            version=version,
        )
        return RunNode.of_snapshot(found)

    async def pause_run(self, context: OperationContext, id: str) -> RunNode:  # noqa: A002
        """Begin no further node of a run until it is resumed. Nodes that run or wait continue."""
        return RunNode.of_snapshot(await context.call(context.workflows.pause, id))

    async def resume_run(self, context: OperationContext, id: str) -> RunNode:  # noqa: A002
        """Resume a paused run."""
        return RunNode.of_snapshot(await context.call(context.workflows.resume, id))

    async def cancel_run(self, context: OperationContext, id: str) -> RunNode:  # noqa: A002
        """Cancel a run with all that it has started, and return it in its last state."""
        return RunNode.of_snapshot(await context.call(context.workflows.cancel, id))

    async def roll_back_workflow(
        self, context: OperationContext, name: str, version: int | None
    ) -> WorkflowVersionNode:
        """Let new tasks of all accounts take a version, by default the one before the current.

        Only if the settings allow it.
        """
        if not context.mesh.settings.rollback:
            text = "versions are chosen by `trunkline workflow rollback`, or with rollback = true"
            raise WireError(FORBIDDEN, f"{text} in the table [graphql]")
        found = await context.call(context.workflows.roll_back, name, version)
        return WorkflowVersionNode(found)


class WorkflowSubscriptions:
    """Subscriptions to runs."""

    async def run_events(
        self,
        context: OperationContext,
        id: str,  # noqa: A002  an argument of the schema
        after: str | None,
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the events of a run from its beginning, or after a cursor, until it has ended."""
        stream = context.workflows.watch(context.caller, id, parse_cursor(after))
        async with stream as events:
            async for ready in events:
                for found in ready:
                    event = render_event(found)
                    if event is not None:
                        yield event


async def _read_workflow(
    context: OperationContext, name: str, version: int | None = None
) -> WorkflowVersionNode:
    return WorkflowVersionNode(await context.call(context.workflows.get_workflow, name, version))


async def _read_runs(
    context: OperationContext,
    name: str,
    state: task_pb2.TaskState.ValueType | None,
    first: int,
    after: str | None,
) -> dict[str, Any]:
    request = a2a_pb2.ListTasksRequest(
        page_size=min(context.check_page_size(first), _MAX_RUNS), page_token=after or ""
    )
    if state is not None:
        request.status = state
    page = await context.call(context.workflows.list_runs, name, request)
    return {"nodes": list(map(RunNode, page.tasks)), "end_cursor": page.next_page_token or None}
