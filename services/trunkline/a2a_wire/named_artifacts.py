"""The artifacts by which A2A clients see plans, tool calls and results: their names and texts.

A2A has no events for these, so the projection shows them as artifacts with fixed names.
"""

from collections.abc import Iterable, Mapping

from trunkline.a2a_wire.roles import ArtifactRole, set_role
from trunkline.json_values import update_struct
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2

PLAN_STREAMING = "execution_plan_streaming"
PLAN_UPDATE = "execution_plan_update"
PLAN_OPENING = "\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}"
PLAN_CLOSING = "\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}"
TOOL_START = "tool_notification_start"
TOOL_COMPLETE = "tool_notification_complete"
_START = ".start"
_COMPLETE = ".complete"
STREAMING_RESULT = "streaming_result"
PARTIAL_RESULT = "partial_result"
CURRENT_RESULT = "current_result"
_HIDDEN_KINDS = frozenset(
    (
        event_pb2.ARTIFACT_KIND_SYNTHESIS,
        event_pb2.ARTIFACT_KIND_DRAFT,
        event_pb2.ARTIFACT_KIND_PROGRESS,
    )
)
# Metadata keys of a forwarded artifact: the agent that wrote it, and its step of the plan.
AGENT_KEY = "trunkline/agent"
STEP_KEY = "trunkline/step"


def artifact_head(
    artifact: artifact_pb2.Artifact,
    kind: event_pb2.ArtifactKind.ValueType,
    origin: event_pb2.Origin | None,
    steps: Mapping[str, str],
    role: ArtifactRole,
) -> artifact_pb2.Artifact:
    """Return an artifact without parts, with its id, name and role on the wire.

    An artifact that a child task wrote is named `streaming_result`, and its id includes the child
    task's. A supervisor's synthesis is `partial_result`, its draft `streaming_result`. All other
    artifacts have the name that their agent chose. `steps` has the plan step of each child task.
    """
    head = artifact_pb2.Artifact(
        artifact_id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        extensions=artifact.extensions,
    )
    if artifact.HasField("metadata"):
        head.metadata.CopyFrom(artifact.metadata)
    if origin is not None:
        head.artifact_id = f"{origin.task_id}.{artifact.artifact_id}"
        if role == ArtifactRole.STREAM:
            head.name = STREAMING_RESULT
        update_struct(head.metadata, {AGENT_KEY: origin.agent})
        if step := steps.get(origin.child_task_id or origin.task_id):
            update_struct(head.metadata, {STEP_KEY: step})
    elif kind == event_pb2.ARTIFACT_KIND_SYNTHESIS:
        head.name = PARTIAL_RESULT
    elif kind == event_pb2.ARTIFACT_KIND_DRAFT:
        head.name = STREAMING_RESULT
    return set_role(head, role)


def plan_artifact(plan_id: str, name: str) -> artifact_pb2.Artifact:
    """Return the artifact of a plan, without its text."""
    return set_role(artifact_pb2.Artifact(artifact_id=plan_id, name=name), ArtifactRole.PLAN)


def is_shown(kind: event_pb2.ArtifactKind.ValueType, origin: event_pb2.Origin | None) -> bool:
    """Return whether clients see an artifact.

    The synthesis of a child supervisor is omitted: its children's artifacts have the same text. So
    are artifacts that a child shows while it works, because they may contain the text of its
    answer.
    """
    return origin is None or kind not in _HIDDEN_KINDS


def child_steps(snapshot: snapshot_pb2.TaskSnapshot) -> dict[str, str]:
    """Return the plan step of each child task, by the child's task id."""
    return {child.started.task_id: child.started.step_id for child in snapshot.children}


def whole_plan(text: str, steps: Iterable[event_pb2.PlanStep]) -> str:
    """Return a plan between its brackets: the text that was streamed, or else a list of its steps.

    For a plan that was streamed, it equals the text of its `execution_plan_streaming` events.
    """
    return f"{PLAN_OPENING}{text or _list_steps(steps)}{PLAN_CLOSING}"


def _list_steps(steps: Iterable[event_pb2.PlanStep]) -> str:
    """Render steps as a numbered list with their agents."""
    return "\n".join(
        f"{number}. {step.text} ({step.agent})" if step.agent else f"{number}. {step.text}"
        for number, step in enumerate(steps, start=1)
    )


def tool_start_artifact(event: event_pb2.ToolStarted) -> artifact_pb2.Artifact:
    """Return the artifact that reports the start of a tool call."""
    artifact_id = f"{event.call_id}{_START}"
    notification = artifact_pb2.Artifact(artifact_id=artifact_id, name=TOOL_START)
    notification.parts.add(text=f"Calling {event.tool}…")
    return set_role(notification, ArtifactRole.NOTICE)


def tool_complete_artifact(event: event_pb2.ToolFinished) -> artifact_pb2.Artifact:
    """Return the artifact that reports the end of a tool call."""
    artifact_id = f"{event.call_id}{_COMPLETE}"
    notification = artifact_pb2.Artifact(artifact_id=artifact_id, name=TOOL_COMPLETE)
    default = f"{event.tool} failed" if event.is_error else f"{event.tool} is done"
    notification.parts.add(text=event.summary or default)
    return set_role(notification, ArtifactRole.NOTICE)


def tool_complete_id(started_id: str) -> str:
    """Return the id of the artifact for the end of a tool call, from that for its start."""
    return started_id.removesuffix(_START) + _COMPLETE


def current_result_artifact() -> artifact_pb2.Artifact:
    """Return the empty artifact that marks the answer as complete."""
    result = artifact_pb2.Artifact(artifact_id=CURRENT_RESULT, name=CURRENT_RESULT)
    result.parts.add(text="")
    return set_role(result, ArtifactRole.NOTICE)
