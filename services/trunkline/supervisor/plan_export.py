"""A plan from the journal as a workflow to keep: with a name, inputs and an answer. Pure.

The inputs are values of the request: the text of a plan's only step, else numbers and texts in
quotes. Their defaults are the values of the request, so a run without input gives the same answer.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from trunkline.core.printable import to_plain_line
from trunkline.errors import InvalidArgumentError
from trunkline.supervisor.plan_workflow import build_plan_workflow
from trunkline.supervisor.recovery import read_plan
from trunkline.supervisor.references import TextReference, format_node_id
from trunkline.supervisor.steps import Step
from trunkline.tasks.content import message_text
from trunkline.v1 import message_pb2, snapshot_pb2
from trunkline.workflows.builders import workflow_to_dict
from trunkline.workflows.definition import Workflow
from trunkline.workflows.validation import load_workflow_dict

_LINE_CHARS: Final = 200
_VALUE: Final = re.compile(
    r'"(?P<quote>[^"\n]{1,200})"|“(?P<curly>[^”\n]{1,200})”'
    r"|(?<![\w.,{])(?P<number>\d+(?:\.\d+)?)(?![\w]|[.,]\d)"
)
_SHORT_ID: Final = 8


def export_plan(snapshot: snapshot_pb2.TaskSnapshot, name: str = "") -> Workflow:
    """Return the latest plan of a supervisor's task as a workflow; by default `plan-TASK`.

    Raises:
        InvalidArgumentError: the task has no plan of a supervisor, or a step has no agent.
        ConfigurationError: the name is none for a workflow.
    """
    task_id = snapshot.task.id
    steps = read_plan(snapshot)
    if not steps:
        raise InvalidArgumentError(task_id, _explain_no_plan(snapshot))
    absent = next((step for step in steps if not step.agent), None)
    if absent is not None:
        problem = f"no agent fits its step {absent.quoted}; ask again without it, and export that"
        raise InvalidArgumentError(task_id, problem)
    request = _find_request(snapshot, steps)
    inputs = _WholeText(steps[0]) if len(steps) == 1 else _Values(request)
    workflow = build_plan_workflow(steps, inputs.find, output=_build_output(steps))
    whole = {
        **workflow_to_dict(workflow),
        "name": name or f"plan-{task_id[-_SHORT_ID:].lower()}",
        "description": f"The plan for: {to_plain_line(request, _LINE_CHARS)}",
    }
    if schema := inputs.build_schema():
        whole["inputs"] = schema
    return load_workflow_dict(whole)


def has_files(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    """Return whether the request of a task has parts that are not text."""
    request = _find_request_message(snapshot, read_plan(snapshot))
    return any(not part.HasField("text") for part in request.parts)


def _explain_no_plan(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    workflow = next((plan.plan_id for plan in snapshot.plans if "@" in plan.plan_id), "")
    if workflow:
        return f"is a run of the workflow {workflow}; give its file to export that"
    if snapshot.routes:
        return "has no plan: its supervisor asked back, or answered itself"
    return f"is a task of agent {snapshot.agent!r}, which is no supervisor, so it has no plan"


def _find_request(snapshot: snapshot_pb2.TaskSnapshot, steps: Sequence[Step]) -> str:
    return message_text(_find_request_message(snapshot, steps))


def _find_request_message(
    snapshot: snapshot_pb2.TaskSnapshot, steps: Sequence[Step]
) -> message_pb2.Message:
    """Return the latest message that has the text of a step, else the first one.

    A later message may have answered the question of an agent.
    """
    messages = [
        message for message in snapshot.task.history if message.role == message_pb2.ROLE_USER
    ]
    for message in reversed(messages):
        if any(step.text in message_text(message) for step in steps):
            return message
    return messages[0] if messages else message_pb2.Message()


def _build_output(steps: Sequence[Step]) -> str | None:
    """Return the answers of all steps in the order of the plan. One step needs no output."""
    if len(steps) == 1:
        return None
    return "\n".join(f"${{nodes.{format_node_id(step.id)}.text}}" for step in steps)


class _WholeText:
    """The text of the only step as the input `text`."""

    def __init__(self, step: Step) -> None:
        self._text = step.text

    def find(self, text: str) -> list[TextReference]:
        return [TextReference(0, len(text), "input.text")]

    def build_schema(self) -> dict[str, Any]:
        return _build_schema({"text": {"type": "string", "default": self._text}})


class _Values:
    """The numbers and the texts in quotes of a request, in its order, as inputs."""

    def __init__(self, request: str) -> None:
        self._request = request
        self._values: list[tuple[re.Match[str], str]] = []
        counts = {"number": 0, "text": 0}
        for match in _VALUE.finditer(request):
            kind = "number" if match["number"] else "text"
            counts[kind] += 1
            self._values.append((match, f"{kind}_{counts[kind]}"))
        self._used: dict[str, dict[str, Any]] = {}

    def find(self, text: str) -> list[TextReference]:
        """Find the inputs in the text of a step, which a model may have written anew."""
        offset = self._request.find(text)
        references: list[TextReference] = []
        for match in _VALUE.finditer(text):
            name = self._find_name(match, offset)
            if name:
                group = match.lastgroup or 0
                self._used[name] = _describe(match)
                references.append(TextReference(*match.span(group), f"input.{name}"))
        return references

    def build_schema(self) -> dict[str, Any] | None:
        names = [name for _, name in self._values if name in self._used]
        return _build_schema({name: self._used[name] for name in names}) if names else None

    def _find_name(self, match: re.Match[str], offset: int) -> str:
        """Return the name of the value at the same place, else of the first equal value."""
        equal = [(each, name) for each, name in self._values if each[0] == match[0]]
        for each, name in equal:
            if offset >= 0 and each.start() == offset + match.start():
                return name
        return equal[0][1] if equal else ""


def _describe(match: re.Match[str]) -> dict[str, Any]:
    text = match[match.lastgroup or 0]
    if match["number"]:
        number = json.loads(text) if not re.match(r"0\d", text) else None
        if str(number) == text:
            return {"type": "number", "default": number}
    return {"type": "string", "default": text}


def _build_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}
