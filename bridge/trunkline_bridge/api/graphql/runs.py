"""Runs of workflows: their fields, and the events of their journals."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from trunkline.a2a_wire.errors import invalid_params
from trunkline.core.json_values import struct_json, value_json
from trunkline.core.parts import join_texts
from trunkline.core.task_states import PAUSED_KEY, TERMINAL, is_paused
from trunkline.mesh.client import run_paths
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2
from trunkline_bridge.api.graphql.context import OperationContext
from trunkline_bridge.api.graphql.fields import to_time
from trunkline_bridge.api.workflows.operations import JournalEvent, RunCursor

_MAX_CURSOR: Final = 2**63 - 1


class RunNode:
    """A run of a workflow, which is a task of its agent."""

    def __init__(
        self, task: task_pb2.Task, snapshot: snapshot_pb2.TaskSnapshot | None = None
    ) -> None:
        """Without the run's snapshot, fields read it when they need it."""
        self.id = task.id
        self.state = task.status.state
        self.status_text = join_texts(task.status.message.parts)
        self.is_paused = is_paused(task.metadata)
        self.status_time = task.status.timestamp
        self._snapshot = snapshot
        self._steps: list[JournalEvent] | None = None

    @staticmethod
    def of_snapshot(snapshot: snapshot_pb2.TaskSnapshot) -> "RunNode":
        """Return a run that was read."""
        return RunNode(snapshot.task, snapshot)

    async def workflow(self, context: OperationContext) -> str:
        """Return the name of the workflow."""
        return (await self._read(context)).agent

    async def version(self, context: OperationContext) -> int | None:
        """Return the version that the run began with."""
        return run_paths.find_version(await self._read(context))

    async def context_id(self, context: OperationContext) -> str:
        """Return the conversation: the correlation id of the messages of the run."""
        return (await self._read(context)).task.context_id

    async def create_time(self, context: OperationContext) -> datetime | None:
        """Return the time at which the run was accepted."""
        return to_time((await self._read(context)).create_time)

    async def answer(self, context: OperationContext) -> dict[str, Any]:
        """Return the answer so far."""
        snapshot = await self._read(context)
        # Artifacts of other agents, which a supervisor forwards, have an origin.
        own = {found.artifact_id for found in snapshot.artifacts if not found.HasField("origin")}
        parts = [
            part
            for artifact in snapshot.task.artifacts
            if artifact.artifact_id in own
            for part in artifact.parts
        ]
        data = [value_json(part.data) for part in parts if part.HasField("data")]
        return {"text": join_texts(parts), "data": data}

    async def path(self, context: OperationContext) -> list[run_paths.VisitedNode] | None:
        """Return the nodes that the run executed, in their order.

        The result is None if the events of the run are not retained any more.
        """
        steps = await self._read_steps(context)
        return None if steps is None else _find_path(steps)

    async def current_nodes(self, context: OperationContext) -> list[str]:
        """Return the nodes that run or wait now; several in parallel branches."""
        if (await self._read(context)).task.status.state in TERMINAL:
            return []
        steps = await self._read_steps(context)
        return [visit.node for visit in _find_path(steps or ()) if visit.end_time is None]

    async def drawing(self, context: OperationContext) -> str | None:
        """Return the workflow as Mermaid text with the path of the run on it.

        The result is None if the run has not begun, or is not a run of a published workflow.
        """
        snapshot = await self._read(context)
        version = run_paths.find_version(snapshot)
        if version is None:
            return None
        path = _find_path(await self._read_steps(context) or ())
        return await context.call(
            context.workflows.draw,
            snapshot.agent,
            version,
            visited=run_paths.list_visited(path),
            failed=run_paths.find_failed(path),
        )

    async def _read(self, context: OperationContext) -> snapshot_pb2.TaskSnapshot:
        if self._snapshot is None:
            self._snapshot = await context.call(context.workflows.get_run, self.id)
        return self._snapshot

    async def _read_steps(self, context: OperationContext) -> list[JournalEvent] | None:
        if self._steps is None:
            self._steps = await context.call(context.workflows.read_steps, self.id)
        return self._steps


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


def render_event(found: JournalEvent) -> Mapping[str, Any] | None:
    """Return an event of a journal, or None if callers do not see it."""
    cursor, header, event = found
    if header.HasField("origin"):
        # Agents that were asked wrote it, and have journals of their own.
        return None
    fields = _render_fields(event)
    if fields is None:
        return None
    return {"cursor": format_cursor(cursor), "time": header.time, **fields}


def _render_fields(event: event_pb2.Event) -> Mapping[str, Any] | None:
    """Return the type of an event and the fields that only this type has."""
    match event.WhichOneof("event"):
        case "status":
            status = event.status.status
            return {
                "__typename": "RunStateChanged",
                "state": status.state,
                "text": join_texts(status.message.parts),
                "is_paused": struct_json(event.status.metadata).get(PAUSED_KEY),
            }
        case "step_started":
            return {"__typename": "NodeStarted", "node": event.step_started.step_id}
        case "step_finished":
            finished = event.step_finished
            return {
                "__typename": "NodeFinished",
                "node": finished.step_id,
                "label": finished.label,
                "is_error": finished.is_error,
                "summary": finished.summary,
            }
        case "delta":
            part = event.delta.part
            return {
                "__typename": "ContentAdded",
                "artifact_id": event.delta.artifact_id,
                "text": "".join(event.delta.texts) or part.text,
                "data": value_json(part.data) if part.HasField("data") else None,
            }
        case "approval_requested" | "approval_answered":
            return _render_approval(event)
        case "child_started" | "child_finished" as kind:
            child = event.child_started if kind == "child_started" else event.child_finished
            return {
                "__typename": "AgentCalled",
                "task_id": child.task_id,
                "agent": child.agent,
                "state": event.child_finished.state if kind == "child_finished" else None,
            }
        case "tool_started" | "tool_finished" as kind:
            call = event.tool_started if kind == "tool_started" else event.tool_finished
            return {
                "__typename": "ToolCalled",
                "call_id": call.call_id,
                "tool": call.tool,
                "is_finished": kind == "tool_finished",
                "is_error": event.tool_finished.is_error,
                "summary": event.tool_finished.summary,
            }
    return None


def _render_approval(event: event_pb2.Event) -> Mapping[str, Any]:
    """Return the request of an approval, or its answer, which has a decision and no tool."""
    is_answer = event.HasField("approval_answered")
    approval = event.approval_answered if is_answer else event.approval_requested
    decision = event_pb2.ApprovalDecision.Name(event.approval_answered.decision)
    return {
        "__typename": "ApprovalChanged",
        "approval_id": approval.approval_id,
        "tool": event.approval_requested.tool,
        "arguments": approval.arguments,
        "decision": decision.removeprefix("APPROVAL_DECISION_").lower() if is_answer else "",
    }


def _find_path(steps: Iterable[JournalEvent]) -> list[run_paths.VisitedNode]:
    return run_paths.find_path((header, event) for _, header, event in steps)
