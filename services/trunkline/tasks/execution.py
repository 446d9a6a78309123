"""Executes the tasks of a journal: runs the code of their agents, and ends the turns.

A task has at most one execution at a time, and only that execution writes to the task. An execution
goes forward through these states, of which it may skip some:

    RESERVED    A submission, a recovery or a cancel holds the task. No code runs.
    RUNNING     The code is prepared, waits for its place among the turns of its agent, or runs.
    STOPPING    The code has to stop, and its writes are refused.
    RELEASED    The next execution of the task may begin.
"""

import asyncio
import enum
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from opentelemetry.trace import Span

from trunkline.core.redaction import redact_addresses
from trunkline.errors import FencedError, JournalUnavailableError, TrunklineError
from trunkline.observe import telemetry
from trunkline.observe.logs import current_task_id
from trunkline.observe.metrics import instruments
from trunkline.observe.span_content import (
    ContentCapture,
    current_capture,
    find_answer,
    record_agent,
    render_parts,
    use_capture,
)
from trunkline.tasks.agent import Agent
from trunkline.tasks.agent_code import describe_defect
from trunkline.tasks.content import message_text
from trunkline.tasks.lifecycle import State
from trunkline.tasks.resources import JournalResources
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from trunkline.tasks.admission import Admission
    from trunkline.tasks.submission import SubmitResult

logger = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[], Awaitable[bool]]
"""Prepares an execution for the code of its agent. Returns False if the code must not run."""


# The code starts after this time, even if the caller does not read its response.
_START_TIMEOUT_S: Final = 1.0


class StartGate:
    """Delays an agent's code until the caller has the response, by a second at most.

    Otherwise code that blocks the event loop would delay the response.
    """

    __slots__ = ("_opened",)

    def __init__(self) -> None:
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        """Let the code run. Repeating this is harmless."""
        if not self._opened.done():
            self._opened.set_result(None)

    async def wait(self) -> None:
        """Wait until the gate is open or the time limit has passed."""
        timer = asyncio.get_running_loop().call_later(_START_TIMEOUT_S, self.open)
        try:
            await self._opened
        finally:
            timer.cancel()


class ExecutionState(enum.Enum):
    """The state of an execution; the module describes the states."""

    RESERVED = enum.auto()
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    RELEASED = enum.auto()


class TaskExecution:
    """The execution of one task, from its reservation to its release."""

    __slots__ = (
        "admission",
        "agent",
        "created",
        "gate",
        "on_released",
        "released",
        "runner",
        "runner_done",
        "state",
        "task_id",
        "termination",
        "turn",
    )

    def __init__(self, task_id: str) -> None:
        self.task_id: str = task_id
        self.state: ExecutionState = ExecutionState.RESERVED
        self.turn: TurnRuntime | None = None
        """The turn of the task, once the task is read or built."""
        self.agent: Agent | None = None
        """The agent whose code runs, if code runs."""
        self.admission: Admission | None = None
        """The place among the turns of the agent, until the code has ended."""
        self.created: asyncio.Future[SubmitResult] | None = None
        """The write of the created event, if this execution creates the task."""
        self.gate: StartGate | None = None
        """Delays the code, if its caller gets the new task as a response first."""
        self.runner: asyncio.Task[None] | None = None
        """The asyncio task that runs the code."""
        self.runner_done: asyncio.Event = asyncio.Event()
        """Set when the code has ended, or was stopped before it began."""
        self.termination: asyncio.Task[None] | None = None
        """The asyncio task that ends the task, if the code does not."""
        self.released: asyncio.Event = asyncio.Event()
        """Set when the next execution of the task may begin."""
        self.on_released: list[Callable[[], None]] = []
        """Called once, at the release."""

    def stop(self, error_type: str = telemetry.CANCELLED) -> None:
        """Cancel the code and refuse its further writes. `error_type` is for its spans."""
        if self.turn is not None:
            self.turn.begin_cancel()
        self._stop_runner(error_type)

    def leave(self) -> None:
        """Stop the code without an end of the turn, which continues at the next host."""
        if self.turn is not None:
            self.turn.pause.is_leaving = True
        self._stop_runner(None)

    def _stop_runner(self, message: str | None) -> None:
        self.state = ExecutionState.STOPPING
        if self.runner is None:
            self.runner_done.set()
        else:
            self.runner.cancel(message)


class TaskExecutions:
    """The executions of the tasks of a journal."""

    def __init__(
        self, resources: JournalResources, *, on_release: Callable[[TaskExecution], None]
    ) -> None:
        """`on_release` is called whenever an execution is released."""
        self.resources = resources
        self._journal = resources.journal
        self._admissions = resources.host.admissions
        self._capture = ContentCapture.from_settings(resources.host.settings)
        self._on_release = on_release
        self._executions: dict[str, TaskExecution] = {}
        # Not in a task group, which would wait forever for code that ignores its cancellation.
        self._runners: set[asyncio.Task[None]] = set()

    def find(self, task_id: str) -> TaskExecution | None:
        """Return the execution of a task, if the task has an execution."""
        return self._executions.get(task_id)

    def has(self, task_id: str) -> bool:
        """Return True if the task has an execution."""
        return task_id in self._executions

    def all(self) -> list[TaskExecution]:
        """Return all executions."""
        return list(self._executions.values())

    def reserve(self, task_id: str) -> TaskExecution:
        """Return a new execution of a task.

        The caller must check that the task has no execution, without an await since the check.
        """
        execution = self._executions[task_id] = TaskExecution(task_id)
        return execution

    def admit(self, execution: TaskExecution, agent: Agent, account: str) -> None:
        """Count the turn as accepted until its code ends. Call it before the turn is journaled."""
        execution.agent = agent
        execution.admission = self._admissions.accept(agent.card.name, account)

    async def load_turn(self, task_id: str) -> TurnRuntime:
        """Return the latest turn of a task, from the current snapshot.

        Raises:
            TaskNotFoundError: the journal does not have the task.
            JournalUnavailableError: the journal can't be read.
        """
        snapshot = await self._journal.snapshot(task_id)
        forwarded = await self._journal.forwarded_sequences(task_id)
        message = snapshot.task.history[-1]
        return TurnRuntime(self.resources, snapshot, message, forwarded=forwarded)

    def run(self, execution: TaskExecution, prepare: Prepare | None = None) -> asyncio.Task[None]:
        """Run the code of the agent, after `prepare` and only if that returns True."""
        execution.state = ExecutionState.RUNNING
        code = self._execute(execution, prepare)
        runner = asyncio.create_task(code, name=execution.task_id)  # noqa: TID251  see `_runners`
        execution.runner = runner
        self._runners.add(runner)
        runner.add_done_callback(self._runners.discard)
        # A `finally` in the coroutine does not run if the task is canceled before its first step.
        runner.add_done_callback(lambda _: self._on_runner_done(execution))
        return runner

    async def stop_creation(self, task_id: str, account: str) -> None:
        """Give up a task of an account that is not written yet, or wait until it is written."""
        execution = self.find(task_id)
        if execution is None or execution.created is None or execution.created.done():
            return
        turn = execution.turn
        # Without a gate, the code runs before the task is written.
        if turn is None or turn.account != account or execution.gate is None:
            return
        if turn.exists:
            await asyncio.wait([execution.created])
        elif execution.runner is not None:
            execution.stop()
            await execution.released.wait()

    def release(self, execution: TaskExecution) -> None:
        """Let the next execution of the task begin. Repeating this is harmless."""
        execution.state = ExecutionState.RELEASED
        if self._executions.get(execution.task_id) is execution:
            del self._executions[execution.task_id]
            self._on_release(execution)
        execution.released.set()
        if execution.runner is None:
            self._release_admission(execution)
        listeners, execution.on_released = execution.on_released, []
        for listener in listeners:
            listener()

    async def _execute(self, execution: TaskExecution, prepare: Prepare | None) -> None:
        try:
            if prepare is not None and not await prepare():
                return
            if execution.gate is not None:
                await execution.gate.wait()
            agent, turn, admission = execution.agent, execution.turn, execution.admission
            if agent is not None and turn is not None and admission is not None:
                queue, priority = admission.queue, turn.snapshot.priority
                turn.set_place(partial(queue.leave, admission, priority))
                async with queue.enter(admission, priority):
                    await self._run_turn(agent, turn)
        except asyncio.CancelledError:
            # The terminator journals the end of a stopped task. Otherwise the host is stopping.
            if execution.state is ExecutionState.RUNNING:
                raise
        except Exception:
            # An error here means that the turn could not be failed. Others must not be affected.
            logger.exception("run.broken", extra={"task_id": execution.task_id})

    def _on_runner_done(self, execution: TaskExecution) -> None:
        self._release_admission(execution)
        execution.runner_done.set()
        if execution.termination is None:
            self.release(execution)

    def _release_admission(self, execution: TaskExecution) -> None:
        admission, execution.admission = execution.admission, None
        if admission is not None:
            self._admissions.release(admission)

    async def _run_turn(self, agent: Agent, turn: TurnRuntime) -> None:
        """Run a turn until it has ended or is stopped, with its span, metrics and log."""
        watch = self.resources.host.watch
        with (
            watch.turn(agent, turn.agent, turn.id),
            nullcontext() if self._capture is None else use_capture(self._capture),
            _observe_turn(agent, turn) as observed,
        ):
            try:
                error = await _run_code(agent, turn)
            except (FencedError, JournalUnavailableError) as lost:
                if not turn.is_lost:
                    raise
                # Nothing can be written any more. The next owner of the task ends it.
                logger.error("task.lost", extra={"task_id": turn.id, "reason": lost.reason})
                error = lost
            _record_approvals(observed.span, turn)
            if self._capture is not None:
                request = message_text(turn.opening_message) or render_parts(
                    turn.opening_message.parts
                )
                record_agent(observed.span, request, await self._read_answer(turn.id))
            if error is not None or turn.state_value == State.TASK_STATE_FAILED:
                observed.error_type = "failed" if error is None else telemetry.error_type(error)
                telemetry.mark_error(observed.span, observed.error_type, _describe_failure(error))

    async def _read_answer(self, task_id: str) -> str:
        """Return the text of the answer of a task, or "" if it can't be read."""
        try:
            return find_answer((await self._journal.snapshot(task_id)).task)
        except TrunklineError:
            return ""


async def _run_code(agent: Agent, turn: TurnRuntime) -> BaseException | None:
    """Run the code of the agent, and end the turn if the code did not. Return its error.

    If the agent returns and the turn has not ended, the task is completed, or waits for its open
    approvals. If the agent raises, the task fails. A cancellation, by a deadline for example, is
    re-raised, and the canceling code journals the end.
    """
    try:
        if turn.is_recovered and turn.state_value == State.TASK_STATE_SUBMITTED:
            # Journals the attempt. If this task crashes its hosts, recovery counts its attempts.
            await turn.working()
        await agent.run(turn)
    except asyncio.CancelledError as error:
        if _is_canceled():
            raise
        # A future that the code awaited was canceled, not this asyncio task.
        await _fail(turn, _log_defect(turn, error))
        return error
    except TrunklineError as error:
        return await _fail_for(turn, error)
    except ExceptionGroup as group:
        # Calls at once are made in a task group, which wraps their errors.
        errors = _find_own_errors(group)
        if not errors:
            await _fail(turn, _log_defect(turn, group))
            return group
        return await _fail_for(turn, errors[0])
    except (Exception, SystemExit) as error:  # noqa: BLE001  the code of an agent may raise anything
        await _fail(turn, _log_defect(turn, error))
        return error
    if not _has_stopped(turn):
        if turn.pending_approvals.is_open:
            await turn.require_input()
        else:
            await turn.complete()
    return None


def _is_canceled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _has_stopped(turn: TurnRuntime) -> bool:
    """Return True if the turn is over, or left to the next host."""
    return turn.is_over or turn.pause.is_leaving


async def _fail(turn: TurnRuntime, text: str) -> None:
    if not _has_stopped(turn):
        await turn.fail(text)


async def _fail_for(turn: TurnRuntime, error: TrunklineError) -> TrunklineError:
    """End the turn with an error that its caller may read, and return the error."""
    if turn.is_lost:
        raise error
    extra = {"task_id": turn.id, "agent": turn.agent, "reason": error.reason}
    if problem := _describe_failure(error):
        extra["problem"] = problem
    logger.warning("task.failed", extra=extra)
    await _fail(turn, str(redact_addresses(error)))
    return error


def _find_own_errors(group: BaseExceptionGroup[BaseException]) -> list[TrunklineError]:
    """Return the errors in a group, or none of them if the group has a defect of the code."""
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


def _log_defect(turn: TurnRuntime, error: BaseException) -> str:
    """Log an unexpected error of the code, and return the text for the status of the task."""
    logger.error("agent.failed", exc_info=error, extra={"task_id": turn.id, "agent": turn.agent})
    return f"agent {turn.agent!r} failed: {describe_defect(error)}"


def _describe_failure(error: BaseException | None) -> str:
    """Return the reason of a failed turn for its span, or "" if the reason may hold content."""
    match error:
        case None:
            return ""
        case TrunklineError():
            # Its text may quote an agent, a model or a user.
            capture = current_capture()
            return capture.clean(str(redact_addresses(error))) if capture else ""
    return describe_defect(error)


@dataclass(slots=True)
class _ObservedTurn:
    """The span of a turn that runs, and the kind of its error."""

    span: Span
    error_type: str = ""
    """Empty if there is no error."""


@contextmanager
def _observe_turn(agent: Agent, turn: TurnRuntime) -> Iterator[_ObservedTurn]:
    """Give a turn its span, its metrics and its line in the log, for the length of a block."""
    operation = telemetry.INVOKE_WORKFLOW if agent.is_workflow else telemetry.INVOKE_AGENT
    attributes: dict[str, AttributeValue] = {
        telemetry.GEN_AI_OPERATION_NAME: operation,
        telemetry.GEN_AI_AGENT_NAME: turn.agent,
        telemetry.GEN_AI_AGENT_DESCRIPTION: agent.card.description,
        telemetry.GEN_AI_CONVERSATION_ID: turn.context_id,
        telemetry.TASK_ID: turn.id,
        telemetry.TURN: turn.number,
    }
    turn.continue_for_user()
    started_s = time.perf_counter()
    # The turn runs in an asyncio task of its own.
    current_task_id.set(turn.id)
    activity = telemetry.TurnActivity(turn.context_id)
    telemetry.current_turn.set(activity)
    name = f"{operation} {turn.agent}"
    with telemetry.span(name, attributes=attributes, service=turn.agent) as span:
        observed = _ObservedTurn(span)
        try:
            yield observed
        except BaseException as error:
            observed.error_type = telemetry.error_type(error)
            raise
        finally:
            duration_s = time.perf_counter() - started_s
            labels = (operation, turn.agent)
            instruments.INVOKE_AGENT_DURATION.record(duration_s, *labels, observed.error_type)
            instruments.MODEL_CALLS.record(activity.model_calls, *labels)
            instruments.TOOL_CALLS.record(activity.tool_calls, *labels)
            if logger.isEnabledFor(logging.INFO):
                fields = {"task_id": turn.id, "agent": turn.agent, "took_ms": duration_s * 1000}
                logger.info("turn.ended", extra=fields | {"error_type": observed.error_type})


def _record_approvals(span: Span, turn: TurnRuntime) -> None:
    """Record in the span of a turn the approvals that it requested, and the answers it used."""
    requested = [approval.requested.approval_id for approval in turn.pending_approvals.new]
    if requested:
        span.set_attribute(telemetry.APPROVALS_REQUESTED, requested)
    answered = [
        answer.approval_id
        for answer in turn.pending_approvals.answers(since=turn.number)
        if answer.turn == turn.number
    ]
    if answered:
        span.set_attribute(telemetry.APPROVALS_ANSWERED, answered)
