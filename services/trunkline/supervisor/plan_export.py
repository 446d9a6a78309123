"""A plan from the journal as a workflow to keep: with a name, inputs and an answer. Pure.

The inputs are values of the request: the text of a plan's only step, else numbers and texts in
quotes. Their defaults are the values of the request, so a run without input gives the same answer.

The workflow has a node for each step. Steps that wait for nothing of each other are in branches of
a parallel node. A workflow has nested branches only: if step 3 needs 1 and 2, and step 4 needs 2
alone, 4 begins when 1 has ended, too.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from trunkline.core.printable import to_plain_line
from trunkline.errors import InvalidArgumentError
from trunkline.supervisor.recovery import read_plan
from trunkline.supervisor.steps import PLACEHOLDER, Step, format_step_id, is_whole_line
from trunkline.tasks.content import message_text
from trunkline.v1 import message_pb2, snapshot_pb2
from trunkline.workflows.builders import workflow_to_dict
from trunkline.workflows.definition import (
    ActionNode,
    AgentNode,
    Edge,
    EndNode,
    Node,
    ParallelNode,
    StartNode,
    Workflow,
)
from trunkline.workflows.validation import load_workflow_dict

_LINE_CHARS: Final = 200
_VALUE: Final = re.compile(
    r'"(?P<quote>[^"\n]{1,200})"|“(?P<curly>[^”\n]{1,200})”'
    r"|(?<![\w.,{])(?P<number>\d+(?:\.\d+)?)(?![\w]|[.,]\d)"
)
_SHORT_ID: Final = 8


class TextReference(NamedTuple):
    """A part of a text that stands for a value."""

    start: int
    end: int
    path: str
    """The name of the value in expressions of workflows."""


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


PLAN: Final = "plan"
"""The name of the workflow, unless an export names it."""
_START: Final = "start"
_END: Final = "end"
_Order: TypeAlias = Mapping[str, frozenset[str]]
"""All steps before each step, by id."""


def build_plan_workflow(
    steps: Sequence[Step],
    find_inputs: Callable[[str], Iterable[TextReference]] = lambda _: (),
    *,
    output: str | None = None,
) -> Workflow:
    """Return a plan as a workflow; a step may read results of others, which have ended before.

    `find_inputs` finds the inputs of the workflow in the text of a step. `output` is its answer.
    """
    builder = _Builder({step.id: step for step in steps}, _order_steps(steps), find_inputs)
    entry = builder.add([step.id for step in steps], _END)
    return Workflow(
        name=PLAN,
        nodes=(StartNode(id=_START), *reversed(builder.nodes), EndNode(id=_END, output=output)),
        edges=(_link(_START, entry), *reversed(builder.edges)),
    )


@dataclass(slots=True)
class _Builder:
    """Adds nodes from the last node to the first, because each leads to a node that exists."""

    steps: Mapping[str, Step]
    order: _Order
    find_inputs: Callable[[str], Iterable[TextReference]]
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    _forks: int = 0

    def add(self, ids: Sequence[str], target: str, *, in_branch: bool = False) -> str:
        """Add the nodes of some steps, which lead to `target`; return the first node.

        `in_branch` is True if the target is the join of the branch that they end.
        """
        if len(ids) == 1:
            return self._add_step(self.steps[ids[0]], target)
        branches = _group(ids, self._is_ordered)
        if len(branches) > 1:
            return self._add_branches(branches, target, in_branch=in_branch)
        for part in reversed(self._divide(ids)):
            target = self.add(part, target, in_branch=in_branch)
            in_branch = False
        return target

    def _divide(self, ids: Sequence[str]) -> list[list[str]]:
        """Divide steps into parts that run one after the other."""
        parts = _group(ids, lambda a, b: not self._is_ordered(a, b))
        if len(parts) == 1:
            first = [each for each in ids if not self.order[each].intersection(ids)]
            return [first, [each for each in ids if each not in first]]
        return sorted(parts, key=lambda part: min(len(self.order[each]) for each in part))

    def _is_ordered(self, first: str, second: str) -> bool:
        return first in self.order[second] or second in self.order[first]

    def _add_step(self, step: Step, target: str) -> str:
        references = find_references(step.text, step.needed_steps)
        inputs = [
            each
            for each in self.find_inputs(step.text)
            if all(each.end <= other.start or other.end <= each.start for other in references)
        ]
        message = write_template(step.text, [*references, *inputs])
        node = AgentNode(id=format_node_id(step.id), agent=step.agent, message=message)
        return self._add_node(node, target)

    def _add_branches(
        self, branches: Sequence[Sequence[str]], target: str, *, in_branch: bool
    ) -> str:
        self._forks += 1
        name = f"fork_{self._forks}"
        if in_branch:
            # The branches meet before the end of the branch around them.
            join = f"join_{self._forks}"
            target = self._add_node(ActionNode(id=join, set={join: "${last.text}"}), target)
        entries = [self.add(branch, target, in_branch=True) for branch in reversed(branches)]
        self.nodes.append(ParallelNode(id=name, join=target))
        self.edges += [_link(name, entry) for entry in entries]
        return name

    def _add_node(self, node: Node, target: str) -> str:
        self.nodes.append(node)
        self.edges.append(_link(node.id, target))
        return node.id


def _link(source: str, target: str) -> Edge:
    return Edge.model_validate({"from": source, "to": target})


def _order_steps(steps: Sequence[Step]) -> _Order:
    """Return all steps before each step. A model's plan may list the steps in any order."""
    after = {step.id: step.after for step in steps}
    order: dict[str, frozenset[str]] = {}

    def find_earlier(step_id: str) -> frozenset[str]:
        if step_id not in order:
            direct = [each for each in after[step_id] if each in after]
            order[step_id] = frozenset(direct).union(*map(find_earlier, direct))
        return order[step_id]

    for step in steps:
        find_earlier(step.id)
    return order


def _group(ids: Sequence[str], are_linked: Callable[[str, str], bool]) -> list[list[str]]:
    """Group ids that links connect, in the order of the ids."""
    groups: list[list[str]] = []
    for each in ids:
        linked = [group for group in groups if any(are_linked(each, other) for other in group)]
        merged = [
            other for other in ids if other == each or any(other in group for group in linked)
        ]
        groups = [group for group in groups if group not in linked]
        groups.append(merged)
    return sorted(groups, key=lambda group: ids.index(group[0]))


def find_references(text: str, needed_steps: Sequence[str]) -> list[TextReference]:
    """Return the references of a step's text.

    `needed_steps` are the steps that find_needed_steps() returned.
    """
    return [
        TextReference(*match.span(), _name_result(step_id, is_whole=is_whole_line(text, match)))
        for match in PLACEHOLDER.finditer(text)
        if (step_id := format_step_id(int(match[1]))) in needed_steps
    ]


def write_template(text: str, references: Iterable[TextReference]) -> str:
    """Return a text as a template of a workflow, in which the references are expressions."""
    pieces: list[str] = []
    position = 0
    for start, end, path in sorted(references):
        pieces += [_escape(text[position:start], is_before_reference=True), f"${{{path}}}"]
        position = end
    return "".join([*pieces, _escape(text[position:], is_before_reference=False)])


def _name_result(step_id: str, *, is_whole: bool) -> str:
    return f"nodes.{format_node_id(step_id)}.{'text' if is_whole else 'value'}"


def _escape(text: str, *, is_before_reference: bool) -> str:
    """Return a text that a template renders as it is."""
    text = text.replace("${", "$${")
    if is_before_reference and text.endswith("$"):
        # `$` before an expression would escape it.
        body = text.rstrip("$")
        return f'{body}${{"{text[len(body) :]}"}}'
    return text


def format_node_id(step_id: str) -> str:
    """Return the id of a step's node, which is an identifier."""
    return step_id.replace("-", "_")
