"""The work of a workflow's nodes, each by its type."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from trunkline.agents.calls.turn_calls import get_turn_calls
from trunkline.core import json_values
from trunkline.core.backoff import Backoff
from trunkline.core.durations import parse_duration
from trunkline.core.json_types import JsonValue
from trunkline.core.redaction import redact_addresses
from trunkline.core.task_states import WORKFLOW_VERSION_KEY, TaskOutcome
from trunkline.errors import PeerError, TrunklineError, UnsupportedOperationError
from trunkline.observe import telemetry
from trunkline.tasks.calls import AgentAnswer
from trunkline.tasks.content import Content
from trunkline.tasks.context import TaskContext
from trunkline.tasks.messages import MeshMessage
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2, message_pb2, part_pb2
from trunkline.workflows.definition import (
    ActionNode,
    AgentNode,
    ApprovalNode,
    ConditionNode,
    EndNode,
    Node,
    ParallelNode,
    Retry,
    StartNode,
    ToolNode,
    WaitNode,
    WorkflowNode,
)
from trunkline.workflows.expressions import VARIABLES, ExpressionError, parse_expression, render
from trunkline.workflows.functions import Function, FunctionFailedError, call_function
from trunkline.workflows.routing import OK

_NO_RETRY: Final = Retry(attempts=1)
_SUMMARY_CHARS: Final = 200
_PARTIAL: Final = "partial"
_FIRST_RETRY_S: Final = 0.2
_LAST_RETRY_S: Final = 5.0


class NodeFailure(Exception):  # noqa: N818  caught within this package
    """A node could not do its work. Its text is the reason, for people."""


class Result(NamedTuple):
    """The result of a node."""

    text: str = ""
    data: Any = None
    label: str = OK
    state: str = "completed"
    values: Mapping[str, Any] = {}
    """New values for `data` of the run."""
    received: str = ""
    """The id of the message that ended a wait."""
    is_partial: bool = False
    """True if a part of an agent's answer is missing."""

    def to_json(self, node: str) -> dict[str, Any]:
        """Return what expressions read."""
        return {
            "node": node,
            "text": self.text,
            "data": self.data,
            "label": self.label,
            "state": self.state,
            "time": time.time_ns() / 1e9,
            **({_PARTIAL: True} if self.is_partial else {}),
        }


@dataclass(slots=True)
class WorkflowRun:
    """The run of a workflow in one turn of its task. The compiled graph calls it for each node."""

    task: TaskContext[Any]
    plan_id: str = ""
    """The plan of the run, `NAME@VERSION`, whose steps are the nodes."""
    functions: Mapping[str, Function] = field(default_factory=dict)
    """The Python functions of the workflow, by `module:name`."""

    async def wait_while_paused(self) -> None:
        """Wait until the task is not paused."""
        await get_turn_runtime(self.task).pause.wait()

    async def start_step(self, node: str) -> None:
        """Journal that a node begins, together with the next events."""
        telemetry.set_attributes(describe_run(self.plan_id))
        event = event_pb2.StepStarted(plan_id=self.plan_id, step_id=node)
        await get_turn_runtime(self.task).record(event_pb2.Event(step_started=event), waits=False)

    async def finish_step(
        self, node: str, label: str, *, is_error: bool = False, text: str = ""
    ) -> None:
        """Journal that a node has ended, or waits; returns when that is durable."""
        event = event_pb2.StepFinished(
            plan_id=self.plan_id,
            step_id=node,
            label=label,
            is_error=is_error,
            summary=" ".join(text[: 2 * _SUMMARY_CHARS].split())[:_SUMMARY_CHARS],
        )
        await get_turn_runtime(self.task).record(event_pb2.Event(step_finished=event))

    async def run_node(self, node: Node, variables: Mapping[str, Any]) -> Result:
        """Do the work of a node, by its type. Raises NodeFailure if it failed."""
        return await run_node(node, variables, self)


def describe_run(plan_id: str) -> dict[str, str | int]:
    """Return the attributes of spans of a run, whose plan is `NAME@VERSION`."""
    name, _, version = plan_id.rpartition("@")
    return {telemetry.WORKFLOW_NAME: name, telemetry.WORKFLOW_VERSION: int(version)}


async def run_node(node: Node, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    """Do the work of a node, with its retries and its time limit.

    Raises:
        NodeFailure: it failed; all attempts are used.
    """
    retry = node.retry or _NO_RETRY
    backoff = Backoff(
        first_s=parse_duration(retry.backoff), limit_s=parse_duration(retry.max_backoff)
    )
    attempt = 1
    while True:
        try:
            return await _attempt(node, variables, run)
        except NodeFailure:
            if attempt >= retry.attempts:
                raise
        attempt += 1
        await asyncio.sleep(backoff.next_s())


async def _attempt(node: Node, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    limit_s = None if node.timeout is None else parse_duration(node.timeout)
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            return await _WORK[type(node)](node, variables, run)
    except TimeoutError:
        if not scope.expired():
            raise
        raise NodeFailure(f"it took longer than {node.timeout}") from None
    except (ExpressionError, FunctionFailedError) as error:
        raise NodeFailure(str(error)) from None
    except TrunklineError as error:
        raise NodeFailure(str(redact_addresses(error))) from error


async def _start(_node: StartNode, variables: Mapping[str, Any], _run: WorkflowRun) -> Result:
    values = variables["input"]
    # Of an input with one field, the text is that field.
    text = values.get("text", next(iter(values.values())) if len(values) == 1 else None)
    return Result(text if isinstance(text, str) else to_text(values), values)


async def _end(node: EndNode, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    last = variables["last"]
    # Of a node that ran several times, the last result counts.
    if any(_PARTIAL in result for result in variables["nodes"].values()):
        await run.task.mark_partial()
    if node.output is None:
        return Result(last["text"], last["data"], state=node.state)
    value = render(node.output, variables)
    if isinstance(value, str):
        return Result(value, state=node.state)
    # The text of an object is its field `text`; programs read the object.
    text = value.get("text") if isinstance(value, Mapping) else None
    return Result(text if isinstance(text, str) else "", value, state=node.state)


async def _ask_agent(node: AgentNode, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    agent = to_text(render(node.agent, variables))
    message = render(node.message, variables)
    content = message if isinstance(message, str) else _data_part(message)
    return await _ask(run, agent, content)


async def _run_workflow(
    node: WorkflowNode, variables: Mapping[str, Any], run: WorkflowRun
) -> Result:
    message = message_pb2.Message(parts=[_data_part(render(node.inputs, variables))])
    if node.version is not None:
        json_values.update_struct(message.metadata, {WORKFLOW_VERSION_KEY: node.version})
    return await _ask(run, node.workflow, message)


async def _ask(run: WorkflowRun, agent: str, content: Content) -> Result:
    """Ask an agent. Its questions are asked of the caller of the workflow."""
    # LangGraph takes a second to load, and the module of an agent is loaded by every command.
    from langgraph.types import interrupt

    answer = await run.task.ask(agent, content, check=False)
    while answer.is_question:
        reply = interrupt(answer.text)
        text = reply if isinstance(reply, str) else to_text(reply)
        answer = await run.task.ask(agent, text, task_id=answer.task_id, check=False)
    if answer.state != "completed":
        raise NodeFailure(answer.text or f"agent {agent!r} ended as {answer.state}")
    data = _read_data(answer)
    text = answer.text or ("" if data is None else to_text(data))
    return Result(text, data, is_partial=answer.outcome is TaskOutcome.PARTIAL)


def _read_data(answer: AgentAnswer) -> JsonValue:
    """Return the data of an answer: its data part, or what its text is as JSON; else None."""
    if answer.data:
        return answer.data[0] if len(answer.data) == 1 else answer.data
    try:
        value = json.loads(answer.text)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


async def _call_tool(node: ToolNode, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    result = await run.task.call_tool(node.tool, render(node.arguments, variables))
    if result.is_error:
        raise NodeFailure(result.text or f"tool {node.tool!r} failed")
    return Result(result.text, None if result.data is None else dict(result.data))


async def _choose(node: ConditionNode, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    last = variables["last"]
    if node.handler:
        value = await call_function(run.functions[node.handler], last, _public(variables))
        label = str(value).lower() if isinstance(value, bool) else str(value)
        return Result(last["text"], last["data"], label)
    for case in node.cases:
        if parse_expression(case.when).evaluate(variables) is True:
            return Result(last["text"], last["data"], case.label)
    return Result(last["text"], last["data"], node.otherwise)


async def _act(node: ActionNode, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    last = variables["last"]
    values = render(node.set, variables)
    text, data = last["text"], last["data"]
    config = render(node.config, variables)
    if node.handler in ACTIONS:
        sent = await ACTIONS[node.handler](run, last, config)
        # The replies to the message have its id as their `causation_id`.
        data = {"id": sent.id, "correlation_id": sent.correlation_id}
    elif node.handler:
        context = {**_public(variables), "config": config}
        value = await call_function(run.functions[node.handler], last, context)
        if value is not None:
            text, data = to_text(value), None if isinstance(value, str) else value
    return Result(text, data, values=values)


async def _broadcast(
    run: WorkflowRun, last: Mapping[str, Any], config: Mapping[str, Any]
) -> MeshMessage:
    """Send the last result, or `text`, to a room, as a message of type `broadcast`."""
    room = str(config.get("room") or "main")
    return await run.task.publish(room, str(config.get("text") or last["text"]), type="broadcast")


async def _send(
    run: WorkflowRun, last: Mapping[str, Any], config: Mapping[str, Any]
) -> MeshMessage:
    """Send the last result, `text`, or `data` of a `type`, to a `recipient`."""
    payload = config.get("data") or str(config.get("text") or last["text"])
    return await run.task.send(str(config["recipient"]), payload, type=str(config.get("type", "")))


ACTIONS: Final[
    Mapping[
        str, Callable[[WorkflowRun, Mapping[str, Any], Mapping[str, Any]], Awaitable[MeshMessage]]
    ]
] = {"broadcast": _broadcast, "send": _send}
"""The built-in actions, by name."""


async def _approve(node: ApprovalNode, variables: Mapping[str, Any], _run: WorkflowRun) -> Result:
    from langgraph.types import interrupt

    last = variables["last"]
    arguments = {"question": render(node.question, variables), **render(node.arguments, variables)}
    request = {"action_requests": [{"name": node.id, "args": arguments}]}
    (decision,) = interrupt(request)["decisions"]
    match decision["type"]:
        case "approve":
            data = arguments
        case "edit":
            data = decision["edited_action"]["args"]
        case _:
            return Result(str(decision.get("message") or last["text"]), last["data"], "rejected")
    return Result(last["text"], data, "approved")


async def _fork(_node: ParallelNode, variables: Mapping[str, Any], _run: WorkflowRun) -> Result:
    last = variables["last"]
    return Result(last["text"], last["data"])


async def _wait(node: WaitNode, variables: Mapping[str, Any], run: WorkflowRun) -> Result:
    last = variables["last"]
    duration_s = None if node.duration is None else parse_duration(node.duration)
    # From the end of the node before, so that a takeover does not begin the wait anew.
    remaining_s = None if duration_s is None else max(0.0, last["time"] + duration_s - _now())
    if not node.message:
        await asyncio.sleep(remaining_s or 0.0)
        return Result(last["text"], last["data"])
    condition = parse_expression(node.when) if node.when else None

    def fits(message: Mapping[str, Any]) -> bool:
        values = {**variables, "message": message}
        return condition is None or condition.evaluate(values) is True

    scope = asyncio.timeout(remaining_s)
    try:
        async with scope:
            message = await _wait_for_message(
                run.task, node.message, fits, exclude=variables["received"]
            )
    except TimeoutError:
        if not scope.expired():
            raise
        return Result(last["text"], last["data"], "timeout")
    return Result(str(message["text"]), message["data"], received=str(message["id"]))


async def _wait_for_message(
    task: TaskContext[Any],
    message_type: str,
    fits: Callable[[Mapping[str, Any]], bool],
    *,
    exclude: Collection[str],
) -> dict[str, Any]:
    """Return the first message of a type, since the task began, that fits and isn't excluded.

    It is one of the task's conversation, from anybody but the agent itself. Messages that were
    accepted before the call count, so that nothing is missed over a restart.

    Raises:
        UnsupportedOperationError: the task does not run on a mesh.
    """
    calls = get_turn_calls(task)
    if calls is None:
        raise UnsupportedOperationError("a wait", "this task does not run on a mesh")
    backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_LAST_RETRY_S)
    while True:
        try:
            async with aclosing(calls.watch_messages(message_type)) as messages:
                async for message in messages:
                    if message.sender == task.agent or message.id in exclude:
                        continue
                    values = _message_json(message)
                    if fits(values):
                        return values
        except PeerError:
            # The messaging service restarts, or its host is away.
            pass
        await asyncio.sleep(backoff.next_s())


def _message_json(message: MeshMessage) -> dict[str, Any]:
    """Return what expressions read of a message."""
    payload = message.payload
    if isinstance(payload, BaseModel):
        data: Any = payload.model_dump(mode="json")
        text = next(
            (data[name] for name in ("text", "content") if isinstance(data.get(name), str)),
            payload.model_dump_json(),
        )
    else:
        data, text = None, payload
    return {
        "id": message.id,
        "correlation_id": message.correlation_id,
        "causation_id": message.causation_id,
        "type": message.type,
        "sender": message.sender,
        "recipient": message.recipient,
        "room": message.room,
        "text": text,
        "data": data,
        "metadata": dict(message.metadata),
    }


_WORK: Final[Mapping[type, Callable[..., Awaitable[Result]]]] = {
    StartNode: _start,
    EndNode: _end,
    AgentNode: _ask_agent,
    ToolNode: _call_tool,
    ConditionNode: _choose,
    ActionNode: _act,
    ApprovalNode: _approve,
    ParallelNode: _fork,
    WaitNode: _wait,
    WorkflowNode: _run_workflow,
}


def _public(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what functions get of the variables: what expressions read."""
    return {name: value for name, value in variables.items() if name in VARIABLES}


def to_text(value: JsonValue) -> str:
    """Return a value as text: itself, or its JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _data_part(value: JsonValue) -> part_pb2.Part:
    return part_pb2.Part(data=json_values.build_value(value))


def _now() -> float:
    return time.time_ns() / 1e9
