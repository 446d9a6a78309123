"""Workflows: their type, queries, mutations, and the subscription to the events of a run."""

from collections.abc import AsyncGenerator
from typing import Final

import strawberry
from strawberry.scalars import JSON

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import FORBIDDEN, WireError
from trunkline_bridge.api.graphql.context import DEFAULT_PAGE_SIZE, Info
from trunkline_bridge.api.graphql.declarations import field, object_type, subscription
from trunkline_bridge.api.graphql.runs import (
    RunEvent,
    RunNode,
    RunPage,
    RunStateName,
    build_event,
    parse_cursor,
)
from trunkline_bridge.api.workflows.catalog import PublishedWorkflow
from trunkline_bridge.api.workflows.operations import build_input

# This is also the limit of pages of tasks.
_MAX_RUNS: Final = 100


@object_type(name="Workflow")
class WorkflowVersionNode:
    """A version of a workflow. `definition` has the form of a workflow file."""

    name: str
    version: int
    is_current: bool
    description: str
    definition: JSON

    @staticmethod
    def build(workflow: PublishedWorkflow) -> "WorkflowVersionNode":
        """Return a version of a workflow."""
        return WorkflowVersionNode(
            name=workflow.name,
            version=workflow.version,
            is_current=workflow.is_current,
            description=workflow.description,
            definition=JSON(dict(workflow.definition)),
        )

    @field
    async def versions(self, info: Info) -> list[int]:
        """Return the numbers of all versions, newest first."""
        context = info.context
        numbers = await context.call(context.workflows.list_versions, self.name)
        return sorted(numbers, reverse=True)

    @field
    async def drawing(self, info: Info) -> str:
        """Return the workflow as Mermaid text."""
        context = info.context
        return await context.call(context.workflows.draw, self.name, self.version)

    @field
    async def runs(
        self,
        info: Info,
        state: RunStateName | None = None,
        first: int = DEFAULT_PAGE_SIZE,
        after: str | None = None,
    ) -> RunPage:
        """Return the runs of all its versions, the latest change first."""
        return await _read_runs(info, self.name, state, first, after)


@object_type(name="WorkflowPage")
class WorkflowPage:
    """A page of workflows by name, each in its current version."""

    nodes: list[WorkflowVersionNode]
    end_cursor: str | None


@object_type(name="WorkflowQueries")
class WorkflowQueries:
    """Queries of workflows and runs."""

    @field
    async def workflow(
        self, info: Info, name: str, version: int | None = None
    ) -> WorkflowVersionNode:
        """Return a published workflow, by default in the version that new tasks take."""
        return await _read_workflow(info, name, version)

    @field
    async def workflows(
        self, info: Info, first: int = DEFAULT_PAGE_SIZE, after: str | None = None
    ) -> WorkflowPage:
        """Return the published workflows that the caller may use, sorted by name."""
        context = info.context
        size = context.check_page_size(first)
        names = await context.call(context.workflows.list_workflows)
        later = [name for name in names if name > (after or "")]
        page = later[:size]
        return WorkflowPage(
            nodes=[await _read_workflow(info, name) for name in page],
            end_cursor=page[-1] if len(later) > size else None,
        )

    @field
    async def run(self, info: Info, id: strawberry.ID) -> RunNode:  # noqa: A002
        """Return a run."""
        context = info.context
        found = await context.call(context.workflows.get_run, id)
        return RunNode.of_snapshot(found)

    @field
    async def runs(
        self,
        info: Info,
        workflow: str,
        state: RunStateName | None = None,
        first: int = DEFAULT_PAGE_SIZE,
        after: str | None = None,
    ) -> RunPage:
        """Return the runs of a workflow, the latest change first."""
        return await _read_runs(info, workflow, state, first, after)


@object_type(name="WorkflowMutations")
class WorkflowMutations:
    """Mutations of runs, and of the versions of workflows."""

    @field
    async def start_workflow(
        self,
        info: Info,
        name: str,
        text: str | None = None,
        data: JSON | None = None,
        version: int | None = None,
        request_id: str = "",
    ) -> RunNode:
        """Start a workflow with a text or an object, without waiting for its end; return the run.

        Authenticated callers that repeat a `requestId` get the run that it started.
        """
        context = info.context
        found = await context.call(
            context.workflows.start,
            name,
            build_input(text, data),
            message_id=request_id,
            version=version,
        )
        return RunNode.of_snapshot(found)

    @field
    async def pause_run(self, info: Info, id: strawberry.ID) -> RunNode:  # noqa: A002
        """Begin no further node of a run until it is resumed. Nodes that run or wait continue."""
        context = info.context
        found = await context.call(context.workflows.pause, id)
        return RunNode.of_snapshot(found)

    @field
    async def resume_run(self, info: Info, id: strawberry.ID) -> RunNode:  # noqa: A002
        """Resume a paused run."""
        context = info.context
        found = await context.call(context.workflows.resume, id)
        return RunNode.of_snapshot(found)

    @field
    async def cancel_run(self, info: Info, id: strawberry.ID) -> RunNode:  # noqa: A002
        """Cancel a run with all that it has started, and return it in its last state."""
        context = info.context
        found = await context.call(context.workflows.cancel, id)
        return RunNode.of_snapshot(found)

    @field
    async def roll_back_workflow(
        self, info: Info, name: str, version: int | None = None
    ) -> WorkflowVersionNode:
        """Let new tasks of all accounts take a version, by default the one before the current.

        Only if the settings allow it.
        """
        context = info.context
        if not context.mesh.settings.rollback:
            text = "versions are chosen by `trunkline workflow rollback`, or with rollback = true"
            raise WireError(FORBIDDEN, f"{text} in the table [graphql]")
        found = await context.call(context.workflows.roll_back, name, version)
        return WorkflowVersionNode.build(found)


@object_type(name="WorkflowSubscriptions")
class WorkflowSubscriptions:
    """Subscriptions to runs."""

    @subscription
    async def run_events(
        self,
        info: Info,
        id: strawberry.ID,  # noqa: A002
        after: str | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run from its beginning, or after a cursor, until it has ended."""
        context = info.context
        stream = context.mesh.workflows.watch(context.caller, id, parse_cursor(after))
        async with stream as events:
            async for ready in events:
                for found in ready:
                    event = build_event(found)
                    if event is not None:
                        yield event


async def _read_workflow(info: Info, name: str, version: int | None = None) -> WorkflowVersionNode:
    context = info.context
    found = await context.call(context.workflows.get_workflow, name, version)
    return WorkflowVersionNode.build(found)


async def _read_runs(
    info: Info, name: str, state: RunStateName | None, first: int, after: str | None
) -> RunPage:
    context = info.context
    request = a2a_pb2.ListTasksRequest(
        page_size=min(context.check_page_size(first), _MAX_RUNS), page_token=after or ""
    )
    if state is not None:
        request.status = state.number
    page = await context.call(context.workflows.list_runs, name, request)
    return RunPage(
        nodes=[RunNode.build(task) for task in page.tasks],
        end_cursor=page.next_page_token or None,
    )
