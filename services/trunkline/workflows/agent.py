"""A workflow as an agent of the mesh."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from trunkline.agents.authoring import FunctionAgent, agent
from trunkline.core.durations import parse_duration
from trunkline.core.json_values import read_member
from trunkline.core.light_imports import light_imports
from trunkline.core.runtime import load_in_thread
from trunkline.core.settings import Settings
from trunkline.core.small_files import SmallFiles
from trunkline.core.task_states import WORKFLOW_VERSION_KEY
from trunkline.errors import ConfigurationError, WorkflowFailedError
from trunkline.observe import telemetry
from trunkline.tasks.context import TaskContext
from trunkline.tasks.delivered_messages import find_delivered
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2, message_pb2
from trunkline.workflows.definition import (
    AgentNode,
    ToolNode,
    WaitNode,
    Workflow,
    WorkflowNode,
)
from trunkline.workflows.functions import load_functions
from trunkline.workflows.nodes import WorkflowRun, describe_run, to_text
from trunkline.workflows.routing import group_edges
from trunkline.workflows.run_values import (
    InputError,
    RunEnded,
    build_parts,
    check_output,
    read_input,
)
from trunkline.workflows.validation import load_workflow
from trunkline.workflows.versions import WorkflowVersions

# Branches and joins of parallel nodes are steps of the graph, too.
_GRAPH_STEPS_PER_STEP: Final = 4
_MODES: Final = ("text/plain", "application/json")


def from_workflow(*workflows: Workflow | str | Path) -> FunctionAgent:
    """Make an agent of a workflow: of its definition, of its file, or of several versions of it.

    The host stores each version in the data directory when it starts. A task ends on the version
    that it began with; new tasks take the newest one.

    Raises:
        ConfigurationError: a file is not valid, or the workflows have different names. When it is
            served: a version was published before with another content.
    """
    definitions = [_read(workflow) for workflow in workflows]
    names = {workflow.name for workflow in definitions}
    if len(names) != 1:
        problem = f"pass the versions of one workflow, not of {', '.join(sorted(names)) or 'none'}"
        raise ConfigurationError("from_workflow", problem)
    runner = _Runner({workflow.version: workflow for workflow in definitions})
    newest = runner.newest
    make = agent(
        name=newest.name,
        description=newest.description or f"Runs the workflow {newest.name}.",
        tags=newest.tags,
        examples=newest.examples,
        version=str(newest.version),
        input_modes=_MODES,
        output_modes=_MODES,
        resumable=True,
    )
    built = replace(
        make(runner.run),
        lifespan=runner.open,
        is_pausable=True,
        is_workflow=True,
        time_limit_s=runner.find_time_limit_s,
        kind="workflow",
    )
    runner.card = built.card
    return built


def _read(workflow: Workflow | str | Path) -> Workflow:
    if isinstance(workflow, Workflow):
        return workflow
    return load_workflow(workflow)


@dataclass(slots=True)
class _Runner:
    """Runs the tasks of one workflow, each on its version."""

    published: dict[int, Workflow]
    card: Any = None
    _versions: WorkflowVersions | None = None
    """The store of the host. Without a store, there are only the versions of the code."""
    _agents: dict[int, FunctionAgent] = field(default_factory=dict)
    _on_change: Callable[[], None] | None = None

    @property
    def newest(self) -> Workflow:
        return self.published[max(self.published)]

    @property
    def awaited_types(self) -> set[str]:
        """The types of the messages that nodes of its versions wait for."""
        return {
            node.message
            for workflow in self.published.values()
            for node in workflow.nodes
            if isinstance(node, WaitNode) and node.message
        }

    @asynccontextmanager
    async def open(
        self, _settings: Settings, files: SmallFiles, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Publish the versions in the small files of the mesh."""
        versions = WorkflowVersions(files)
        for number in sorted(self.published):
            await versions.publish(self.published[number])
        self._versions, self._on_change = versions, on_change
        self._show_version(await versions.current(self.newest.name))
        on_change()
        yield

    async def run(self, task: TaskContext[Any]) -> None:
        """Run a turn of a task on the version that the task began with.

        A message that nodes wait for, and a reply to a message of a run, begin no run: the run
        reads them in its conversation. Any other message does.
        """
        envelope = find_delivered(get_turn_runtime(task).snapshot)
        if envelope is not None and (envelope.is_reply or envelope.type in self.awaited_types):
            return
        try:
            number = await self._choose_version(task)
            graph_agent = await self._load(number)
        except ConfigurationError as error:
            await task.fail(str(error))
            return
        telemetry.set_attributes(describe_run(f"{self.newest.name}@{number}"))
        try:
            await graph_agent.function(task)  # type: ignore[misc]  # it is no generator
        except InputError as error:
            await task.reject(str(error))
        except RunEnded as end:
            await (task.reject if end.state == "rejected" else task.fail)(end.text)

    async def find_time_limit_s(self, message: message_pb2.Message) -> float | None:
        """Return the time limit of the version that the task of a message takes."""
        try:
            workflow = await self._read_version(await self._choose_new_version(message))
        except ConfigurationError:
            # The run fails with the reason.
            return None
        time = workflow.limits.time
        return None if time is None else parse_duration(time)

    async def _choose_version(self, task: TaskContext[Any]) -> int:
        """Return the version of the task. A new task takes the requested or the current version."""
        name = self.newest.name
        for plan in get_turn_runtime(task).latest.plans:
            owner, _, number = plan.plan_id.rpartition("@")
            if owner == name and number.isdigit():
                return int(number)
        return await self._choose_new_version(task.message)

    async def _choose_new_version(self, message: message_pb2.Message) -> int:
        """Return the version that a message requests, else the current one."""
        requested = read_member(message.metadata, WORKFLOW_VERSION_KEY)
        if requested is not None:
            return int(requested) if isinstance(requested, int | float) else 0
        if self._versions is None:
            return self.newest.version
        current = await self._versions.current(self.newest.name)
        self._show_version(current)
        return current

    def _show_version(self, number: int) -> None:
        """Put the version that new tasks take on the card."""
        if self.card.version != str(number):
            self.card.version = str(number)
            if self._on_change is not None:
                self._on_change()

    async def _read_version(self, number: int) -> Workflow:
        """Return a version. Raises ConfigurationError if it does not exist."""
        if self._versions is not None:
            return await self._versions.load(self.newest.name, number)
        if number not in self.published:
            raise ConfigurationError(f"workflow {self.newest.name!r}", f"no version {number}")
        return self.published[number]

    async def _load(self, number: int) -> FunctionAgent:
        """Return the compiled graph of a version as an agent."""
        built = self._agents.get(number)
        if built is None:
            workflow = await self._read_version(number)
            # LangGraph takes a second to load.
            built = self._agents[number] = await load_in_thread(_build_graph_agent, workflow)
        return built


def _build_graph_agent(workflow: Workflow) -> FunctionAgent:
    """Return the compiled graph of one version as an agent.

    Raises:
        ConfigurationError: a function of it can't be imported.
    """
    with light_imports():
        from trunkline.agents.langgraph import from_langgraph
        from trunkline.workflows.compiler import compile_workflow

    functions = load_functions(workflow)
    plan_id = f"{workflow.name}@{workflow.version}"
    return from_langgraph(
        compile_workflow(workflow),
        name=workflow.name,
        description=workflow.description or workflow.name,
        input=partial(_begin, workflow, plan_id),
        output=partial(_end, workflow),
        context=lambda task: WorkflowRun(task, plan_id, functions),
        stream=(),
        step_limit=workflow.limits.steps * _GRAPH_STEPS_PER_STEP + 10,
        memory=False,
    )


async def _begin(workflow: Workflow, plan_id: str, task: TaskContext[Any]) -> dict[str, Any]:
    """Check the input, and journal the plan, which pins the version, before the first node."""
    values = read_input(workflow, task.message)
    turn = get_turn_runtime(task)
    if not any(plan.plan_id == plan_id for plan in turn.latest.plans):
        plan = event_pb2.PlanChanged(plan_id=plan_id, revision=1, steps=_build_steps(workflow))
        await turn.record(event_pb2.Event(plan=plan))
    return {"input": values}


def _build_steps(workflow: Workflow) -> Sequence[event_pb2.PlanStep]:
    sources: dict[str, list[str]] = {}
    for edges in group_edges(workflow).values():
        for edge in edges:
            sources.setdefault(edge.target, []).append(edge.source)
    return [
        event_pb2.PlanStep(
            step_id=node.id,
            text=node.description or node.type,
            agent=_find_agent(node),
            after=dict.fromkeys(sources.get(node.id, ())),
        )
        for node in workflow.nodes
    ]


def _find_agent(node: object) -> str:
    match node:
        case AgentNode():
            return node.agent
        case ToolNode():
            return node.tool
        case WorkflowNode():
            return node.workflow
        case _:
            return ""


def _end(workflow: Workflow, state: Mapping[str, Any]) -> Any:  # noqa: ANN401  an Output
    """Return the answer of a run.

    Raises:
        RunEnded: it ended at a node whose state is `failed` or `rejected`.
        WorkflowFailedError: the answer does not fit `outputs`.
    """
    output = state["output"]
    if output["state"] != "completed":
        text = output["text"] or ("" if output["data"] is None else to_text(output["data"]))
        raise RunEnded(output["state"], text)
    if problem := check_output(workflow, output):
        raise WorkflowFailedError(workflow.name, output["node"], problem)
    return build_parts(output)
