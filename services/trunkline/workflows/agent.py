"""A workflow as an agent of the mesh."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema

from trunkline.agents.authoring import FunctionAgent
from trunkline.agents.langgraph import from_langgraph
from trunkline.errors import WorkflowFailedError
from trunkline.tasks.content import to_json
from trunkline.tasks.context import TaskContext
from trunkline.v1 import part_pb2
from trunkline.workflows.compiler import WorkflowState, compile_workflow
from trunkline.workflows.definition import ConditionNode, WaitNode, Workflow
from trunkline.workflows.expressions import Expression
from trunkline.workflows.nodes import Function, WorkflowRun

# Branches of parallel nodes end at nodes of their own, which are steps of the graph, too.
_GRAPH_STEPS_PER_STEP: Final = 3


class _InputError(ValueError):
    """The input of a run does not fit the schema of the workflow."""


def build_workflow_agent(
    workflow: Workflow, functions: Mapping[str, Function] | None = None
) -> FunctionAgent:
    """Return the agent of a workflow that has been validated.

    `functions` are the Python functions of the workflow, by `module:name`.
    """
    conditions = {
        text: Expression.parse(text)
        for node in workflow.nodes
        for text in (
            [case.when for case in node.cases]
            if isinstance(node, ConditionNode)
            else [node.when]
            if isinstance(node, WaitNode) and node.when
            else []
        )
    }

    def build_run(task: TaskContext[Any]) -> WorkflowRun:
        return WorkflowRun(task, functions or {}, conditions)

    return from_langgraph(
        compile_workflow(workflow),
        name=workflow.name,
        description=workflow.description or f"Runs the workflow {workflow.name}.",
        tags=workflow.tags,
        examples=workflow.examples,
        version=str(workflow.version),
        input_modes=("text/plain", "application/json"),
        output_modes=("text/plain", "application/json"),
        input=lambda task: _build_input(workflow, task),
        output=lambda state: _build_output(workflow, state),
        context=build_run,
        stream=(),
        step_limit=workflow.limits.steps * _GRAPH_STEPS_PER_STEP + 10,
    )


def _build_input(workflow: Workflow, task: TaskContext[Any]) -> WorkflowState:
    """Return the input of a run: the data of the message, or its text."""
    data = [to_json(part.data) for part in task.message.parts if part.HasField("data")]
    values: Any = data[0] if data else _read_text(workflow, task.text)
    if not isinstance(values, dict):
        values = {"value": values}
    if workflow.inputs is not None:
        validator = jsonschema.Draft202012Validator(dict(workflow.inputs))
        error = next(iter(sorted(validator.iter_errors(values), key=str)), None)
        if error is not None:
            path = ".".join(map(str, error.absolute_path)) or "input"
            raise WorkflowFailedError(workflow.name, "start", f"{path}: {error.message}")
    return {"input": values}


def _read_text(workflow: Workflow, text: str) -> dict[str, Any]:
    """Return a text as input: as JSON if it is an object, else under the one required name."""
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return value
    required: Sequence[str] = (workflow.inputs or {}).get("required", ())
    return {required[0] if len(required) == 1 else "text": text}


def _build_output(workflow: Workflow, state: Mapping[str, Any]) -> list[str | part_pb2.Part]:
    output = state["output"]
    if output["state"] != "completed":
        raise WorkflowFailedError(workflow.name, output["node"], output["text"])
    parts: list[str | part_pb2.Part] = [output["text"]]
    return parts
