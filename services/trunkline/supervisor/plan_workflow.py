"""The plan of a turn as a workflow: a node for each step, edges for what each waits for. Pure.

Steps that wait for nothing of each other are in branches of a parallel node. A workflow has nested
branches only: if step 3 needs 1 and 2, and step 4 needs 2 alone, 4 begins when 1 has ended, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from trunkline.supervisor.references import (
    TextReference,
    find_references,
    format_node_id,
    write_template,
)
from trunkline.supervisor.steps import Step
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
