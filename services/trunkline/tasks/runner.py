"""Runs one turn of an agent's code, and ends the turn if the code does not."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from opentelemetry.trace import Span

from trunkline import telemetry
from trunkline.errors import (
    FencedError,
    JournalUnavailableError,
    TrunklineError,
)
from trunkline.journal.journal import Journal
from trunkline.logs import current_task_id
from trunkline.metrics import instruments
from trunkline.redaction import redact_addresses
from trunkline.span_content import (
    ContentCapture,
    current_capture,
    find_answer,
    record_agent,
    render_parts,
    use_capture,
)
from trunkline.tasks.agent import Agent, WorkflowAgent
from trunkline.tasks.defects import describe_defect
from trunkline.tasks.lifecycle import State
from trunkline.tasks.loop_watch import LoopWatch
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

logger = logging.getLogger(__name__)

ReadAnswer: TypeAlias = Callable[[str], Awaitable[str]]
"""Reads the answer of the task with an id, for its span."""


class TurnRunner:
    """Runs the turns of a journal's tasks."""

    def __init__(
        self, journal: Journal, watch: LoopWatch, capture: ContentCapture | None = None
    ) -> None:
        """`watch` names the turns that block the event loop.

        With `capture`, the spans of turns and of all below them have their content.
        """
        self._journal = journal
        self._watch = watch
        self._capture = capture

    async def run(self, agent: Agent, task: TurnRuntime) -> None:
        """Run a turn; see `run_turn`."""
        with self._watch.turn(agent, task.agent, task.id):
            if self._capture is None:
                await run_turn(agent, task)
                return
            with use_capture(self._capture):
                await run_turn(agent, task, read_answer=self._read_answer)

    async def _read_answer(self, task_id: str) -> str:
        """Return the text of a task's answer; "" if it can't be read."""
        try:
            return find_answer((await self._journal.snapshot(task_id)).task)
        except TrunklineError:
            return ""


async def run_turn(agent: Agent, task: TurnRuntime, read_answer: ReadAnswer | None = None) -> None:
    """Run the turn until it has ended or is stopped.

    `read_answer` reads what the turn's span gets as its answer.

    If the agent returns and the turn has not ended, the task is completed, or waits for its open
    approvals. If the agent raises, the task fails. A cancellation, by a deadline for example, is
    re-raised, and the canceling code journals the end.
    """
    is_workflow = isinstance(agent, WorkflowAgent) and agent.is_workflow
    operation = telemetry.INVOKE_WORKFLOW if is_workflow else telemetry.INVOKE_AGENT
    attributes: dict[str, AttributeValue] = {
        telemetry.GEN_AI_OPERATION_NAME: operation,
        telemetry.GEN_AI_AGENT_NAME: task.agent,
        telemetry.GEN_AI_AGENT_DESCRIPTION: agent.card.description,
        telemetry.GEN_AI_CONVERSATION_ID: task.context_id,
        telemetry.TASK_ID: task.id,
        telemetry.TURN: task.turn,
    }
    task.continue_for_user()
    name = f"{operation} {task.agent}"
    started_s = time.perf_counter()
    error_type = ""
    # The turn runs in an asyncio task of its own.
    current_task_id.set(task.id)
    activity = telemetry.TurnActivity(task.context_id)
    telemetry.current_turn.set(activity)
    with telemetry.span(name, attributes=attributes, service=task.agent) as span:
        try:
            error_type = await _run_in_span(agent, task, span, read_answer)
        except BaseException as error:
            error_type = telemetry.error_type(error)
            raise
        finally:
            duration_s = time.perf_counter() - started_s
            instruments.INVOKE_AGENT_DURATION.record(duration_s, operation, task.agent, error_type)
            instruments.MODEL_CALLS.record(activity.model_calls, operation, task.agent)
            instruments.TOOL_CALLS.record(activity.tool_calls, operation, task.agent)
            if logger.isEnabledFor(logging.INFO):
                fields = {"task_id": task.id, "agent": task.agent, "took_ms": duration_s * 1000}
                logger.info("turn.ended", extra=fields | {"error_type": error_type})


async def _run_in_span(
    agent: Agent, task: TurnRuntime, span: Span, read_answer: ReadAnswer | None
) -> str:
    """Run a turn, and describe it in its span. Return the kind of its error, or an empty text."""
    try:
        error = await _run(agent, task)
    except (FencedError, JournalUnavailableError) as lost:
        if not task.is_lost:
            raise
        # Nothing can be written any more. The next owner of the task ends it.
        logger.error("task.lost", extra={"task_id": task.id, "reason": lost.reason})
        error = lost
    _record_approvals(span, task)
    if read_answer is not None:
        request = task.text or render_parts(task.message.parts)
        record_agent(span, request, await read_answer(task.id))
    if error is None and task.state != State.TASK_STATE_FAILED:
        return ""
    error_type = telemetry.error_type(error) if error is not None else "failed"
    telemetry.mark_error(span, error_type, _describe_failure(error))
    return error_type


def _describe_failure(error: BaseException | None) -> str:
    """Return the reason of a failed turn for its span; "" if it may hold content."""
    match error:
        case None:
            return ""
        case TrunklineError():
            # Its text may quote an agent, a model or a user.
            capture = current_capture()
            return capture.clean(str(redact_addresses(error))) if capture else ""
    return describe_defect(error)


def _record_approvals(span: Span, task: TurnRuntime) -> None:
    """Record in the turn's span the approvals that it requested, and the answers it used."""
    requested = [approval.requested.approval_id for approval in task.pending_approvals.new]
    if requested:
        span.set_attribute(telemetry.APPROVALS_REQUESTED, requested)
    answered = [
        answer.approval_id
        for answer in task.pending_approvals.answers(since=task.turn)
        if answer.turn == task.turn
    ]
    if answered:
        span.set_attribute(telemetry.APPROVALS_ANSWERED, answered)


async def _run(agent: Agent, task: TurnRuntime) -> BaseException | None:
    """Run the agent's code, and end the turn if the code did not. Return the error of the code."""
    try:
        if task.is_recovered and task.state == State.TASK_STATE_SUBMITTED:
            # Journals the attempt. If this task crashes its hosts, recovery counts its attempts.
            await task.working()
        await agent.run(task)
    except asyncio.CancelledError as error:
        if _is_canceled():
            raise
        # A future that the code awaited was canceled, not this asyncio task.
        await _fail(task, _log_defect(task, error))
        return error
    except TrunklineError as error:
        return await _fail_for(task, error)
    except ExceptionGroup as group:
        # Calls at once are made in a task group, which wraps their errors.
        errors = _find_own_errors(group)
        if not errors:
            await _fail(task, _log_defect(task, group))
            return group
        return await _fail_for(task, errors[0])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an agent's code may raise anything
        await _fail(task, _log_defect(task, error))
        return error
    if not _is_stopped(task):
        if task.pending_approvals.is_open:
            await task.require_input()
        else:
            await task.complete()
    return None


def _is_canceled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _is_stopped(task: TurnRuntime) -> bool:
    """Return True if the turn is over, or left to the next host: the code's end has no effect."""
    return task.is_over or task.pause.is_leaving


async def _fail(task: TurnRuntime, text: str) -> None:
    if not _is_stopped(task):
        await task.fail(text)


async def _fail_for(task: TurnRuntime, error: TrunklineError) -> TrunklineError:
    """End the turn with an error that its caller may read, and return it."""
    if task.is_lost:
        raise error
    extra = {"task_id": task.id, "agent": task.agent, "reason": error.reason}
    if problem := _describe_failure(error):
        extra["problem"] = problem
    logger.warning("task.failed", extra=extra)
    await _fail(task, str(redact_addresses(error)))
    return error


def _find_own_errors(group: BaseExceptionGroup[BaseException]) -> list[TrunklineError]:
    """Return the errors in a group; empty if one of them is a defect of the agent's code."""
    errors: list[TrunklineError] = []
    for error in group.exceptions:
        match error:
            case TrunklineError():
                errors.append(error)
            case BaseExceptionGroup() if inner := _find_own_errors(error):
                errors += inner
            case _:
                return []
    return errors


def _log_defect(task: TurnRuntime, error: BaseException) -> str:
    """Log an unexpected error of an agent's code, and return the text for the task's status."""
    logger.error("agent.failed", exc_info=error, extra={"task_id": task.id, "agent": task.agent})
    return f"agent {task.agent!r} failed: {describe_defect(error)}"
