"""Takes answers to approvals that don't come as a message: they become one, of the root task."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from trunkline import telemetry
from trunkline.errors import (
    ApprovalNotFoundError,
    PeerUnavailableError,
    TaskEndedError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.journal.journal import Journal
from trunkline.tasks.accounts import own_row
from trunkline.tasks.agent import Agent
from trunkline.tasks.approvals import (
    answers_since,
    approval_task_id,
    build_answer_message,
    check_answer,
    check_same_decision,
)
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, state_name
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.submit_handler import SubmitHandler
from trunkline.v1 import event_pb2, message_service_pb2, snapshot_pb2, task_service_pb2

logger = logging.getLogger(__name__)

AnswerApproval: TypeAlias = Callable[
    [task_service_pb2.AnswerApprovalRequest], Awaitable[snapshot_pb2.ApprovalInfo]
]
"""Answers an approval of a task on any host."""

# How long what a child asks takes at most to be known to its parent, which reads along.
_BUBBLES_UP_S: Final = 2.0


def agent_absent_error(agent: str) -> PeerUnavailableError:
    """Return the error for answering a task whose agent does not run here.

    It can't be taken: only a host of the agent has its state, and gets the journal when it comes.
    """
    problem = "the host of its task doesn't run it; try again when one that does is there"
    return PeerUnavailableError(f"agent {agent!r}", problem)


class ApprovalRouter:
    """Gives answers to the tasks of a host that wait for them; see TaskService.AnswerApproval.

    A task with a parent is answered by that: whoever asked is told by the one that called it, so
    each journal on the way holds the answer before the next one does. At the root the answer is
    the message of the next turn; while a turn runs it is journaled, and that message follows.
    """

    def __init__(
        self,
        journal: Journal,
        agents: Mapping[str, Agent],
        *,
        runs: TaskSlots,
        intake: SubmitHandler,
        answer_parent: AnswerApproval | None,
    ) -> None:
        """`answer_parent` is how tasks of this and other hosts are answered."""
        self._journal = journal
        self._agents = agents
        self._runs = runs
        self._intake = intake
        self._answer_parent = answer_parent

    async def answer(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task or one of its descendants asks for.

        Raises:
            TaskNotFoundError, InvalidArgumentError, ApprovalNotFoundError, ApprovalAnsweredError,
            TaskEndedError, PeerUnavailableError, JournalUnavailableError.
        """
        answer = event_pb2.ApprovalAnswered(
            approval_id=request.approval_id, decision=request.decision, reason=request.reason
        )
        if request.HasField("arguments"):
            answer.arguments.CopyFrom(request.arguments)
        own_row(self._journal, request.task_id, request.account)
        check_answer(answer)
        task, approval = await self._find(request.task_id, request.approval_id)
        while not approval.HasField("answered"):
            if task.task.status.state in TERMINAL:
                raise TaskEndedError(task.task.id, state_name(task.task.status.state))
            if task.HasField("parent"):
                return await self._at_parent(task.parent.task_id, request)
            await self._at_root(task, answer)
            await asyncio.sleep(0)
            task, approval = await self._find(request.task_id, request.approval_id)
        check_same_decision(approval.answered, answer)
        return approval

    async def resume_answered(self, task_id: str) -> None:
        """Open the next turn of a task that waits, if answers came for it while the last one ran.

        The host calls this when a turn has ended, and when it takes a journal up.
        """
        try:
            task = await self._journal.snapshot(task_id)
            ahead = answers_since(task.approvals, since=task.turn + 1)
            if ahead and task.task.status.state in INTERRUPTED:
                await self._open_turn(task, ahead)
        except (UnsupportedOperationError, TaskEndedError):
            pass  # Another message opened the turn first; it takes the answers along.
        except TrunklineError as error:
            # It still waits although it has its answers; the next start looks again.
            extra = {"task_id": task_id, "reason": error.reason}
            logger.warning("approval.not_gone_on", extra=extra)

    async def notify_parent(self, task_id: str) -> None:
        """Answer at a task's parent what the task was told in the turn that has just ended.

        The parent knows it, unless somebody has answered the task itself: then it would go on
        waiting for what is done.
        """
        try:
            task = await self._journal.snapshot(task_id)
            for answered in answers_since(task.approvals, since=task.turn):
                request = task_service_pb2.AnswerApprovalRequest(
                    account=task.account,
                    approval_id=answered.approval_id,
                    decision=answered.decision,
                    reason=answered.reason,
                )
                if answered.HasField("arguments"):
                    request.arguments.CopyFrom(answered.arguments)
                await self._at_parent(task.parent.task_id, request)
        except TrunklineError as error:
            # It has ended, or was told otherwise, or is away: it finds out when it asks again.
            logger.info("approval.parent_not_told", extra={"reason": error.reason})

    async def _find(
        self, task_id: str, approval_id: str
    ) -> tuple[snapshot_pb2.TaskSnapshot, snapshot_pb2.ApprovalInfo]:
        """Return the task and its approval; what a descendant has just asked for is waited for."""
        is_own = approval_task_id(approval_id) == task_id
        with suppress(TimeoutError):
            async with asyncio.timeout(_BUBBLES_UP_S):
                while True:
                    task = await self._journal.snapshot(task_id)
                    for one in task.approvals:
                        if one.requested.approval_id == approval_id:
                            return task, one
                    if is_own or task.task.status.state in TERMINAL | INTERRUPTED:
                        break
                    await self._journal.wait(task_id, task.sequence)
        raise ApprovalNotFoundError(approval_id)

    async def _at_parent(
        self, parent_id: str, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        if self._answer_parent is None:
            raise PeerUnavailableError(parent_id, "its host is not on the mesh")
        above = task_service_pb2.AnswerApprovalRequest()
        above.CopyFrom(request)
        above.task_id = parent_id
        return await self._answer_parent(above)

    async def _at_root(
        self, task: snapshot_pb2.TaskSnapshot, answer: event_pb2.ApprovalAnswered
    ) -> None:
        """Give the root its answer; having been overtaken is no trouble: the caller looks again."""
        run = self._runs.find(task.task.id)
        if run is None:
            with suppress(UnsupportedOperationError):
                await self._open_turn(task, [answer])
        elif run.context is None or run.context.is_over:
            await run.released.wait()
        else:
            await self._while_it_works(run, answer)

    async def _while_it_works(self, run: TaskSlot, answer: event_pb2.ApprovalAnswered) -> None:
        context = run.context
        if context is None:
            return
        known = context.pending_approvals.find(answer.approval_id)
        if known is not None and not known.HasField("answered"):
            await context.record_answer(answer)
        else:
            # Another answer is being journaled.
            await context.flush()

    async def _open_turn(
        self, task: snapshot_pb2.TaskSnapshot, answers: list[event_pb2.ApprovalAnswered]
    ) -> None:
        agent = self._agents.get(task.agent)
        if agent is None:
            raise agent_absent_error(task.agent)
        message = build_answer_message(
            answers,
            message_id=f"approval-{answers[0].approval_id}",
            task_id=task.task.id,
            context_id=task.task.context_id,
        )
        submission = message_service_pb2.Submission(account=task.account, caller=task.caller)
        if not telemetry.current_trace_id():
            # There is no caller: the answers came while the last turn ran.
            telemetry.continue_trace(task.traceparent)
        await self._intake.continue_task(agent, message, submission)
