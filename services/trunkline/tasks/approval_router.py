"""Routes answers to approvals to the root task, where they open the next turn."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from trunkline.core.users import continue_for, current_user
from trunkline.errors import (
    ApprovalNotFoundError,
    PeerUnavailableError,
    TaskEndedError,
    TrunklineError,
    UnsupportedOperationError,
)
from trunkline.observe import telemetry
from trunkline.tasks.approvals import (
    answers_since,
    approval_task_id,
    build_answer_message,
    check_answer,
    check_same_decision,
)
from trunkline.tasks.execution import TaskExecution, TaskExecutions
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, state_name
from trunkline.tasks.submission import SubmitHandler
from trunkline.tasks.task_rows import get_account_row
from trunkline.tasks.turn_state import turn_traceparent
from trunkline.v1 import event_pb2, message_service_pb2, snapshot_pb2, task_service_pb2

logger = logging.getLogger(__name__)

# The longest wait for a parent to forward the approval that its child has just requested.
_FORWARD_TIMEOUT_S: Final = 2.0


def agent_absent_error(agent: str) -> PeerUnavailableError:
    """Return the error for answering a task whose agent does not run here.

    The answer is refused, because only a host of the agent can open the next turn. The first such
    host takes over the journal.
    """
    problem = "the host of its task doesn't run it; try again once a host that runs it has joined"
    return PeerUnavailableError(f"agent {agent!r}", problem)


class ApprovalRouter:
    """Delivers answers to the tasks of a journal; see TaskService.AnswerApproval.

    An answer for a task with a parent goes to the parent, up to the root. Each task then passes it
    down to its child, so every journal on the path has the answer before the next one. At the root
    the answer becomes the message of the next turn. If a turn is running there, the answer is
    journaled at once and the message follows when the turn has ended.
    """

    def __init__(self, executions: TaskExecutions, submit_handler: SubmitHandler) -> None:
        self._journal = executions.resources.journal
        self._agents = executions.resources.host.agents
        self._answer_parent = executions.resources.host.others.answer_parent
        self._executions = executions
        self._submit_handler = submit_handler

    async def answer(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task or one of its descendants has requested.

        Raises:
            TaskNotFoundError: the account has no such task.
            InvalidArgumentError: the decision or the arguments are not valid.
            ApprovalNotFoundError: the task did not request the approval.
            ApprovalAnsweredError: the approval has a different answer.
            TaskEndedError: the task has ended.
            PeerUnavailableError: the agent does not run here, or a parent's host can't be reached.
            JournalUnavailableError: the journal can't be read or written.
        """
        answer = event_pb2.ApprovalAnswered(
            approval_id=request.approval_id, decision=request.decision, reason=request.reason
        )
        if request.HasField("arguments"):
            answer.arguments.CopyFrom(request.arguments)
        await get_account_row(self._journal, request.task_id, request.account)
        check_answer(answer)
        task, approval = await self._find(request.task_id, request.approval_id)
        while not approval.HasField("answered"):
            if task.task.status.state in TERMINAL:
                raise TaskEndedError(task.task.id, state_name(task.task.status.state))
            if task.HasField("parent"):
                return await self._answer_at_parent(task.parent.task_id, request)
            await self._answer_at_root(task, answer)
            await asyncio.sleep(0)
            task, approval = await self._find(request.task_id, request.approval_id)
        check_same_decision(approval.answered, answer)
        return approval

    async def resume_answered(self, task_id: str) -> None:
        """Open the next turn of a waiting task if answers arrived while its last turn ran.

        The host calls this when a turn has ended, and when it opens a journal.
        """
        try:
            task = await self._journal.snapshot(task_id)
            answers = answers_since(task.approvals, since=task.turn + 1)
            if answers and task.task.status.state in INTERRUPTED:
                # The turn works for the users who answered, not for the user of the last turn.
                current_user.set(None)
                for answer in answers:
                    continue_for(task.account, answer.user, answer.user_statement)
                await self._open_turn(task, answers)
        except (UnsupportedOperationError, TaskEndedError):
            pass  # Another message opened the turn first; that turn reads the answers, too.
        except TrunklineError as error:
            # The task still waits, with its answers journaled. The next start tries again.
            extra = {"task_id": task_id, "reason": error.reason}
            logger.warning("approval.not_gone_on", extra=extra)

    async def notify_parent(self, task_id: str) -> None:
        """Send the answers of the turn that has just ended to the task's parent.

        If a person answered the child directly, the parent does not have them, and would wait for
        an approval that is no longer pending.
        """
        try:
            task = await self._journal.snapshot(task_id)
            for answered in answers_since(task.approvals, since=task.turn):
                # Each answer is proven by the statement of the user who gave it.
                current_user.set(None)
                continue_for(task.account, answered.user, answered.user_statement)
                request = task_service_pb2.AnswerApprovalRequest(
                    account=task.account,
                    approval_id=answered.approval_id,
                    decision=answered.decision,
                    reason=answered.reason,
                )
                if answered.HasField("arguments"):
                    request.arguments.CopyFrom(answered.arguments)
                await self._answer_at_parent(task.parent.task_id, request)
        except TrunklineError as error:
            # The parent has ended, has another answer, or can't be reached. In the last case it
            # reads the answer when it calls the child again.
            logger.info("approval.parent_not_told", extra={"reason": error.reason})

    async def _find(
        self, task_id: str, approval_id: str
    ) -> tuple[snapshot_pb2.TaskSnapshot, snapshot_pb2.ApprovalInfo]:
        """Return a task and its approval. Waits up to 2 s until a child forwards the approval."""
        is_own = approval_task_id(approval_id) == task_id
        with suppress(TimeoutError):
            async with asyncio.timeout(_FORWARD_TIMEOUT_S):
                while True:
                    task = await self._journal.snapshot(task_id)
                    for approval in task.approvals:
                        if approval.requested.approval_id == approval_id:
                            return task, approval
                    if is_own or task.task.status.state in TERMINAL | INTERRUPTED:
                        break
                    await self._journal.wait(task_id, task.sequence)
        raise ApprovalNotFoundError(approval_id)

    async def _answer_at_parent(
        self, parent_id: str, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        if self._answer_parent is None:
            raise PeerUnavailableError(parent_id, "its host is not on the mesh")
        parent_request = task_service_pb2.AnswerApprovalRequest()
        parent_request.CopyFrom(request)
        parent_request.task_id = parent_id
        return await self._answer_parent(parent_request)

    async def _answer_at_root(
        self, task: snapshot_pb2.TaskSnapshot, answer: event_pb2.ApprovalAnswered
    ) -> None:
        """Answer at the root task. Another answer may come first, so the caller checks again."""
        execution = self._executions.find(task.task.id)
        if execution is None:
            with suppress(UnsupportedOperationError):
                await self._open_turn(task, [answer])
        elif execution.turn is None or execution.turn.is_over:
            await execution.released.wait()
        else:
            await self._answer_running_turn(execution, answer)

    async def _answer_running_turn(
        self, execution: TaskExecution, answer: event_pb2.ApprovalAnswered
    ) -> None:
        turn = execution.turn
        if turn is None:
            return
        current = turn.pending_approvals.find(answer.approval_id)
        if current is not None and not current.HasField("answered"):
            await turn.record_answer(answer)
        else:
            # Another answer is being journaled.
            await turn.flush()

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
            # No call is in progress: the answers arrived while the last turn ran.
            telemetry.continue_trace(turn_traceparent(task))
        continue_for(task.account, task.caller, task.user_statement)
        await self._submit_handler.continue_task(agent, message, submission)
