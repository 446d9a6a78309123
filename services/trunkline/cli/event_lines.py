"""Events of a journal as lines: their kinds in the words of the page, and their content."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from trunkline.cli.task_view import excerpt, excerpt_parts, name_artifact
from trunkline.cli.times import render_percent
from trunkline.core.json_values import struct_json
from trunkline.core.task_states import TaskOutcome, find_outcome, state_name
from trunkline.tasks.approvals import render_decision
from trunkline.v1 import event_pb2, json_pb2

EVENT_WORDS: Final[Mapping[str, str]] = {
    "created": "task created",
    "status": "state",
    "delta": "artifact",
    "rewound": "rewound",
    "plan": "plan",
    "tool_started": "tool called",
    "tool_task_started": "tool task",
    "tool_finished": "tool returned",
    "approval_requested": "approval asked",
    "approval_answered": "approval",
    "child_started": "agent called",
    "child_finished": "agent ended",
    "route_decided": "routed",
    "turn_started": "turn",
    "step_started": "step started",
    "step_finished": "step finished",
}
"""The word for each kind of event, as in `event_words.js` of the page."""

FAILURE_WORDS: Final[Mapping[str, str]] = {
    "tool_finished": "tool failed",
    "step_finished": "step failed",
}
"""The word instead for an event that says that something failed."""

_WORD_WIDTH: Final = max(map(len, EVENT_WORDS.values()))
# The artifacts whose names are remembered.
_MAX_NAMES: Final = 10_000


class EventDescriber:
    """Describes events on a line each. All deltas of an artifact get the name of its first one."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}

    def describe(self, event: event_pb2.Event, task_id: str) -> str:
        """Return the kind and the content of an event that a task wrote."""
        kind = event.WhichOneof("event") or "unknown"
        content = getattr(event, kind, None)
        words = FAILURE_WORDS if getattr(content, "is_error", False) else EVENT_WORDS
        word = words.get(kind) or kind.replace("_", " ")
        return f"{word:<{_WORD_WIDTH}}  {self._content(kind, content, task_id)}".rstrip()

    def _content(self, kind: str, content: Any, task_id: str) -> str:  # noqa: ANN401  any event
        if isinstance(content, event_pb2.ArtifactDelta):
            return _delta(content, self._name(content, task_id))
        if isinstance(content, event_pb2.ArtifactRewound):
            name = self._names.get((task_id, content.remains.artifact_id))
            text = excerpt_parts(content.remains.parts)
            return f"{name or content.remains.artifact_id}: {text}"
        describe = _DESCRIBERS.get(kind)
        return describe(content) if describe else ""

    def _name(self, delta: event_pb2.ArtifactDelta, task_id: str) -> str:
        key = (task_id, delta.artifact_id)
        if delta.HasField("start"):
            name = name_artifact(delta.start.name, delta.start.kind, delta.artifact_id)
            self._names[key] = name
            while len(self._names) > _MAX_NAMES:
                del self._names[next(iter(self._names))]
        return self._names.get(key, delta.artifact_id)


def _created(event: event_pb2.TaskCreated) -> str:
    caller = f" by {event.caller}" if event.caller else ""
    return f"for {event.agent}{caller}: {excerpt_parts(event.message.parts)}"


def _status(event: event_pb2.StatusChanged) -> str:
    text = excerpt_parts(event.status.message.parts)
    state = state_name(event.status.state)
    if find_outcome(event.status.state, event.metadata) is TaskOutcome.PARTIAL:
        state += " (partial)"
    return f"{state}: {text}" if text else state


def _delta(event: event_pb2.ArtifactDelta, name: str) -> str:
    text = "".join(event.texts) or (excerpt_parts([event.part]) if event.HasField("part") else "")
    end = " complete" if event.last else ""
    return f"{name}{end}: {excerpt(text)}" if text else f"{name}{end}"


def _plan(event: event_pb2.PlanChanged) -> str:
    if not event.steps:
        return excerpt("".join(event.texts))
    steps = "; ".join(f"{step.agent or 'no agent'}: {step.text}" for step in event.steps)
    count = len(event.steps)
    return excerpt(f"of {count} step{'' if count == 1 else 's'}: {steps}")


def _tool_started(event: event_pb2.ToolStarted) -> str:
    return f"{event.tool} {_arguments(event.arguments)}".rstrip()


def _tool_task_started(event: event_pb2.ToolTaskStarted) -> str:
    return event.handle or event.call_id


def _tool_finished(event: event_pb2.ToolFinished) -> str:
    return f"{event.tool}: {excerpt(event.summary)}".removesuffix(": ")


def _approval_requested(event: event_pb2.ApprovalRequested) -> str:
    return f"{event.approval_id} {event.tool} {_arguments(event.arguments)}".rstrip()


def _approval_answered(event: event_pb2.ApprovalAnswered) -> str:
    decision = f"{render_decision(event.decision)} {event.approval_id}"
    by = ": ".join(filter(None, (event.user, excerpt(event.reason))))
    return f"{decision} {by}".rstrip()


def _child_started(event: event_pb2.ChildStarted) -> str:
    # The id comes first: a narrow terminal cuts the end of the line.
    return f"{event.task_id} {event.agent}"


def _child_finished(event: event_pb2.ChildFinished) -> str:
    return f"{event.task_id} {event.agent} {state_name(event.state)}"


def _route(event: event_pb2.RouteDecided) -> str:
    target = f"to {event.agent or 'no agent'}"
    confidence = f", {render_percent(event.confidence)}" if event.confidence else ""
    return excerpt(f"{target}{confidence}: {'; '.join(event.reasons)}".removesuffix(": "))


def _turn_started(event: event_pb2.TurnStarted) -> str:
    return f"{event.turn}: {excerpt_parts(event.message.parts)}"


def _step_started(event: event_pb2.StepStarted) -> str:
    return event.step_id


def _step_finished(event: event_pb2.StepFinished) -> str:
    label = f" {event.label}" if event.label and not event.is_error else ""
    return excerpt(f"{event.step_id}{label}: {event.summary}".removesuffix(": "))


_DESCRIBERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "created": _created,
    "status": _status,
    "plan": _plan,
    "tool_started": _tool_started,
    "tool_task_started": _tool_task_started,
    "tool_finished": _tool_finished,
    "approval_requested": _approval_requested,
    "approval_answered": _approval_answered,
    "child_started": _child_started,
    "child_finished": _child_finished,
    "route_decided": _route,
    "turn_started": _turn_started,
    "step_started": _step_started,
    "step_finished": _step_finished,
}


def _arguments(arguments: json_pb2.Struct) -> str:
    """Return arguments as JSON, "" without any."""
    values = struct_json(arguments)
    return excerpt(json.dumps(values, ensure_ascii=False)) if values else ""
