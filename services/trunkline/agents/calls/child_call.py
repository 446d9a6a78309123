"""Starts a child of a task and calls it, and records both in the task's journal."""

import asyncio
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind

from trunkline.agents.calls.child import ChildTask
from trunkline.agents.calls.outcome import Outcome, failed_outcome
from trunkline.core.redaction import redact_addresses
from trunkline.errors import TrunklineError
from trunkline.mesh.client import Directory, allocate_task_id
from trunkline.observe import telemetry
from trunkline.tasks.lifecycle import State, state_name
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.util.types import AttributeValue


def allocate_child(
    task: TurnRuntime, directory: Directory, agent: str, *, step_id: str, shares: int = 1
) -> event_pb2.ChildStarted:
    """Return a new child of `agent`. Journal the event before anything is sent to the child.

    The child gets one of `shares` equal parts of what remains of the limits per request.

    Raises:
        AgentNotFoundError: no live host has the agent.
        PeerUnavailableError: the registry has not answered yet.
        TreeLimitError: nothing remains of the limits.
    """
    child_id = allocate_task_id(directory.get_agent_host(agent))
    budget = task.tree.reserve(child_id, agent, shares=shares)
    return event_pb2.ChildStarted(task_id=child_id, agent=agent, step_id=step_id, budget=budget)


async def call_child(
    task: TurnRuntime,
    child: ChildTask,
    message: message_pb2.Message,
    *,
    shown_text: str,
    is_retry: bool,
    attributes: "Mapping[str, AttributeValue] | None" = None,
) -> Outcome:
    """Send a child its message, follow its turn, and journal its end.

    `shown_text` is the message in the tool event. An error of the call is the outcome, and
    `child.error` has it. See `ChildTask.run` for `is_retry` and cancellation.
    """
    agent = child.agent
    span_attributes: dict[str, AttributeValue] = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.INVOKE_AGENT,
        telemetry.GEN_AI_PROVIDER_NAME: telemetry.TRUNKLINE,
        telemetry.GEN_AI_AGENT_NAME: agent,
        telemetry.GEN_AI_CONVERSATION_ID: task.context_id,
        telemetry.TASK_ID: child.id,
        telemetry.PARENT_TASK_ID: task.id,
        **(attributes or {}),
    }
    name = f"{telemetry.INVOKE_AGENT} {agent}"
    with telemetry.span(name, kind=SpanKind.CLIENT, attributes=span_attributes) as span:
        async with task.tool(agent, {"message": shown_text}) as call:
            try:
                outcome = await child.run(message, is_retry=is_retry)
            except asyncio.CancelledError:
                if child.is_detached:
                    call.summary = f"{agent}: still at work"
                    raise
                call.summary = f"{agent}: canceled"
                canceled = Outcome(agent, State.TASK_STATE_CANCELED, usage=child.usage)
                await task.record(_build_finished_event(child, canceled))
                raise
            except TrunklineError as error:
                child.error = error
                outcome = failed_outcome(
                    agent, str(redact_addresses(error)), child_id=child.id, usage=child.usage
                )
                telemetry.mark_error(span, error)
            else:
                if outcome.is_failure:
                    telemetry.mark_error(span, state_name(outcome.state))
            call.is_error = outcome.is_failure
            call.summary = f"{agent}: {state_name(outcome.state)}"
    # The text of an answer is in its artifacts, unless it came as a status or a direct reply.
    status_text = outcome.text if outcome.is_status_text or not outcome.is_answer else ""
    await task.record(_build_finished_event(child, outcome, status_text))
    return outcome


def _build_finished_event(child: ChildTask, outcome: Outcome, text: str = "") -> event_pb2.Event:
    end = event_pb2.ChildFinished(
        task_id=child.id,
        agent=child.agent,
        state=outcome.state,
        text=text,
        usage=outcome.usage,
        partial=outcome.is_partial,
        failures_named=outcome.names_failures,
    )
    return event_pb2.Event(child_finished=end)
