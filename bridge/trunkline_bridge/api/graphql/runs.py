"""Runs of workflows: their types, and the events of their journals."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Final, TypeAlias

import strawberry
from strawberry.scalars import JSON

from trunkline.a2a_wire.errors import invalid_params
from trunkline.core.json_values import struct_json, value_json
from trunkline.core.task_states import PAUSED_KEY, TERMINAL, is_paused
from trunkline.mesh.client import run_paths
from trunkline.v1 import event_pb2, part_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.api.graphql.context import Info, to_time
from trunkline_bridge.api.graphql.declarations import field, interface_type, object_type
from trunkline_bridge.api.workflows.operations import JournalEvent, RunCursor

_STATE: Final = "TASK_STATE_"
_MAX_CURSOR: Final = 2**63 - 1


@strawberry.enum(name="RunState", description="The state of a run, which is the state of its task.")
class RunStateName(Enum):
    """The states of a run, by their names in the contract."""

    SUBMITTED = "SUBMITTED"
    WORKING = "WORKING"
    INPUT_REQUIRED = "INPUT_REQUIRED"
    AUTH_REQUIRED = "AUTH_REQUIRED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    REJECTED = "REJECTED"

    @staticmethod
    def build(state: int) -> "RunStateName":
        """Return the name of a state of the contract."""
        name = task_pb2.TaskState.Name(task_pb2.TaskState.ValueType(state))
        return RunStateName(name.removeprefix(_STATE))

    @property
    def number(self) -> task_pb2.TaskState.ValueType:
        """The state of the contract."""
        return task_pb2.TaskState.Value(f"{_STATE}{self.value}")


@object_type(name="NodeVisit")
class NodeVisit:
    """A node that a run executed, or executes now: then it has no `endTime`.

    `label` is the way on that the node chose; `waiting`: it waits for an answer.
    """

    node: strawberry.ID
    label: str
    is_error: bool
    summary: str
    start_time: datetime | None
    end_time: datetime | None

    @staticmethod
    def build(visit: run_paths.VisitedNode) -> "NodeVisit":
        """Return a node of a path."""
        return NodeVisit(
            node=strawberry.ID(visit.node),
            label=visit.label,
            is_error=visit.is_error,
            summary=visit.summary,
            start_time=to_time(visit.start_time),
            end_time=None if visit.end_time is None else to_time(visit.end_time),
        )


@object_type(name="RunAnswer")
class RunAnswer:
    """The answer of a run so far: its texts, and its data parts."""

    text: str
    data: list[JSON]


@object_type(name="WorkflowRun")
class RunNode:
    """A run of a workflow, which is a task of its agent. Tasks of supervisors can be read, too.

    `version` is null until the run has begun.
    """

    id: strawberry.ID
    state: RunStateName
    status_text: str
    is_paused: bool
    status_time: datetime | None
    snapshot: strawberry.Private[snapshot_pb2.TaskSnapshot | None] = None
    steps: strawberry.Private[list[JournalEvent] | None] = None

    @staticmethod
    def build(task: task_pb2.Task, snapshot: snapshot_pb2.TaskSnapshot | None = None) -> "RunNode":
        """Return a run. Without its snapshot, fields read it when they need it."""
        return RunNode(
            id=strawberry.ID(task.id),
            state=RunStateName.build(task.status.state),
            status_text=_join_texts(task.status.message.parts),
            is_paused=is_paused(task.metadata),
            status_time=to_time(task.status.timestamp),
            snapshot=snapshot,
        )

    @staticmethod
    def of_snapshot(snapshot: snapshot_pb2.TaskSnapshot) -> "RunNode":
        """Return a run that was read."""
        return RunNode.build(snapshot.task, snapshot)

    @field
    async def workflow(self, info: Info) -> str:
        """Return the name of the workflow."""
        return (await self._read(info)).agent

    @field
    async def version(self, info: Info) -> int | None:
        """Return the version that the run began with."""
        return run_paths.find_version(await self._read(info))

    @field
    async def context_id(self, info: Info) -> str:
        """Return the conversation: the correlation id of the messages of the run."""
        return (await self._read(info)).task.context_id

    @field
    async def create_time(self, info: Info) -> datetime | None:
        """Return the time at which the run was accepted."""
        return to_time((await self._read(info)).create_time)

    @field
    async def answer(self, info: Info) -> RunAnswer:
        """Return the answer so far."""
        snapshot = await self._read(info)
        # Artifacts of other agents, which a supervisor forwards, have an origin.
        own = {found.artifact_id for found in snapshot.artifacts if not found.HasField("origin")}
        parts = [
            part
            for artifact in snapshot.task.artifacts
            if artifact.artifact_id in own
            for part in artifact.parts
        ]
        data = [JSON(value_json(part.data)) for part in parts if part.HasField("data")]
        return RunAnswer(text=_join_texts(parts), data=data)

    @field
    async def path(self, info: Info) -> list[NodeVisit] | None:
        """Return the nodes that the run executed, in their order.

        Null: the events of the run are not retained any more.
        """
        steps = await self._read_steps(info)
        return None if steps is None else list(map(NodeVisit.build, _find_path(steps)))

    @field
    async def current_nodes(self, info: Info) -> list[strawberry.ID]:
        """Return the nodes that run or wait now; several in parallel branches."""
        if (await self._read(info)).task.status.state in TERMINAL:
            return []
        steps = await self._read_steps(info)
        return [
            strawberry.ID(visit.node) for visit in _find_path(steps or ()) if visit.end_time is None
        ]

    @field
    async def drawing(self, info: Info) -> str | None:
        """Return the workflow as Mermaid text with the path of the run on it.

        The result is null if the run has not begun, or is not a run of a published workflow.
        """
        context = info.context
        snapshot = await self._read(info)
        version = run_paths.find_version(snapshot)
        if version is None:
            return None
        path = _find_path(await self._read_steps(info) or ())
        return await context.call(
            context.workflows.draw,
            snapshot.agent,
            version,
            visited=run_paths.list_visited(path),
            failed=run_paths.find_failed(path),
        )

    async def _read(self, info: Info) -> snapshot_pb2.TaskSnapshot:
        if self.snapshot is None:
            context = info.context
            self.snapshot = await context.call(context.workflows.get_run, self.id)
        return self.snapshot

    async def _read_steps(self, info: Info) -> list[JournalEvent] | None:
        if self.steps is None:
            context = info.context
            self.steps = await context.call(context.workflows.read_steps, self.id)
        return self.steps


@object_type(name="WorkflowRunPage")
class RunPage:
    """A page of runs, the latest change first. `endCursor` is the `after` of the next page."""

    nodes: list[RunNode]
    end_cursor: str | None


@interface_type(name="RunEvent")
class RunEvent:
    """An event of a run. `cursor` is the `after` by which another subscription continues."""

    cursor: str
    time: datetime | None


@object_type(name="RunStateChanged")
class RunStateChanged(RunEvent):
    """The run entered a state, was paused or resumed, or says how it is getting on."""

    state: RunStateName
    text: str
    is_paused: bool | None


@object_type(name="NodeStarted")
class NodeStarted(RunEvent):
    """A node began."""

    node: strawberry.ID


@object_type(name="NodeFinished")
class NodeFinished(RunEvent):
    """A node ended, or waits for an answer: then its `label` is `waiting`."""

    node: strawberry.ID
    label: str
    is_error: bool
    summary: str


@object_type(name="ContentAdded")
class ContentAdded(RunEvent):
    """A piece of the answer: a text, or data."""

    artifact_id: str
    text: str
    data: JSON | None


@object_type(name="ApprovalChanged")
class ApprovalChanged(RunEvent):
    """A person is asked, or has answered: then it has a `decision`."""

    approval_id: strawberry.ID
    tool: str
    arguments: JSON
    decision: str


@object_type(name="AgentCalled")
class AgentCalled(RunEvent):
    """The run asked an agent, or has its answer: then it has a `state`."""

    task_id: strawberry.ID
    agent: str
    state: RunStateName | None


@object_type(name="ToolCalled")
class ToolCalled(RunEvent):
    """The run called a tool, or has its result: then `summary` has it in a line."""

    call_id: strawberry.ID
    tool: str
    is_finished: bool
    is_error: bool
    summary: str


RUN_EVENTS: Final = (
    RunStateChanged,
    NodeStarted,
    NodeFinished,
    ContentAdded,
    ApprovalChanged,
    AgentCalled,
    ToolCalled,
)
"""The types of events."""


def format_cursor(cursor: RunCursor) -> str:
    """Return a position as an opaque text."""
    return f"{cursor.epoch}-{cursor.sequence}"


def parse_cursor(text: str | None) -> RunCursor:
    """Return a position. Without a text, it is before the first event. WireError: invalid."""
    if text is None:
        return RunCursor(0, 0)
    epoch, _, sequence = text.partition("-")
    if not all(
        part.isascii() and part.isdecimal() and len(part) < 20 for part in (epoch, sequence)
    ):
        raise invalid_params(("after", "is no cursor; use the cursor of an event, or leave it out"))
    cursor = RunCursor(int(epoch), int(sequence))
    if max(cursor) > _MAX_CURSOR:
        raise invalid_params(("after", "is no cursor of this run"))
    return cursor


def _find_path(steps: Iterable[JournalEvent]) -> list[run_paths.VisitedNode]:
    return run_paths.find_path((header, event) for _, header, event in steps)


_Time: TypeAlias = datetime | None


def _build_state(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    status, metadata = event.status.status, struct_json(event.status.metadata)
    return RunStateChanged(
        cursor=cursor,
        time=time,
        state=RunStateName.build(status.state),
        text=_join_texts(status.message.parts),
        is_paused=metadata.get(PAUSED_KEY),
    )


def _build_node_started(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    return NodeStarted(cursor=cursor, time=time, node=strawberry.ID(event.step_started.step_id))


def _build_node_finished(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    finished = event.step_finished
    return NodeFinished(
        cursor=cursor,
        time=time,
        node=strawberry.ID(finished.step_id),
        label=finished.label,
        is_error=finished.is_error,
        summary=finished.summary,
    )


def _build_content(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    delta = event.delta
    return ContentAdded(
        cursor=cursor,
        time=time,
        artifact_id=delta.artifact_id,
        text="".join(delta.texts) or delta.part.text,
        data=JSON(value_json(delta.part.data)) if delta.part.HasField("data") else None,
    )


def _build_request(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    requested = event.approval_requested
    return ApprovalChanged(
        cursor=cursor,
        time=time,
        approval_id=strawberry.ID(requested.approval_id),
        tool=requested.tool,
        arguments=JSON(struct_json(requested.arguments)),
        decision="",
    )


def _build_decision(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    answered = event.approval_answered
    decision = event_pb2.ApprovalDecision.Name(answered.decision)
    return ApprovalChanged(
        cursor=cursor,
        time=time,
        approval_id=strawberry.ID(answered.approval_id),
        tool="",
        arguments=JSON(struct_json(answered.arguments)),
        decision=decision.removeprefix("APPROVAL_DECISION_").lower(),
    )


def _build_call(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    is_finished = event.HasField("child_finished")
    child = event.child_finished if is_finished else event.child_started
    return AgentCalled(
        cursor=cursor,
        time=time,
        task_id=strawberry.ID(child.task_id),
        agent=child.agent,
        state=RunStateName.build(event.child_finished.state) if is_finished else None,
    )


def _build_tool_call(cursor: str, time: _Time, event: event_pb2.Event) -> RunEvent:
    is_finished = event.HasField("tool_finished")
    call = event.tool_finished if is_finished else event.tool_started
    return ToolCalled(
        cursor=cursor,
        time=time,
        call_id=strawberry.ID(call.call_id),
        tool=call.tool,
        is_finished=is_finished,
        is_error=event.tool_finished.is_error,
        summary=event.tool_finished.summary,
    )


_BUILDERS: Final[Mapping[str, Callable[[str, _Time, event_pb2.Event], RunEvent]]] = {
    "status": _build_state,
    "step_started": _build_node_started,
    "step_finished": _build_node_finished,
    "delta": _build_content,
    "approval_requested": _build_request,
    "approval_answered": _build_decision,
    "child_started": _build_call,
    "child_finished": _build_call,
    "tool_started": _build_tool_call,
    "tool_finished": _build_tool_call,
}


def build_event(found: JournalEvent) -> RunEvent | None:
    """Return an event of a journal, or None if callers do not see it."""
    cursor, header, event = found
    if header.HasField("origin"):
        # Agents that were asked wrote it, and have journals of their own.
        return None
    build = _BUILDERS.get(event.WhichOneof("event") or "")
    return None if build is None else build(format_cursor(cursor), to_time(header.time), event)


def _join_texts(parts: Iterable[part_pb2.Part]) -> str:
    return "".join(part.text for part in parts)
