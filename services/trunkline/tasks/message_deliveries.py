"""Delivers messages between agents: each delivery is a task of the recipient."""

import asyncio
from functools import partial

from trunkline.errors import AgentNotFoundError, TrunklineError
from trunkline.tasks.delivered_messages import (
    DeliveryResult,
    read_direct_reply,
    read_result,
    without_payload,
)
from trunkline.tasks.execution import TaskExecution
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State
from trunkline.tasks.resources import JournalResources
from trunkline.tasks.submission import SubmitHandler, SubmitResult, build_creation_error
from trunkline.tasks.task_rows import get_account_row, wait_for_turn_end
from trunkline.v1 import envelope_pb2, message_pb2, message_service_pb2


class MessageDeliveries:
    """The deliveries of messages to the agents of a host, whose tasks are in one journal."""

    def __init__(
        self, group: asyncio.TaskGroup, resources: JournalResources, handler: SubmitHandler
    ) -> None:
        """`group` runs the waits for results."""
        self._group = group
        self._journal = resources.journal
        self._agents = resources.host.agents
        self._handler = handler
        self._is_closing = False

    def close(self) -> None:
        """Read no further results, because the host stops."""
        self._is_closing = True

    async def deliver(
        self,
        agent_name: str,
        envelope: envelope_pb2.Envelope,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> asyncio.Future[DeliveryResult]:
        """Run the task of a delivery; the future has the result of its turn.

        See `TaskHost.deliver` for the contract.
        """
        task_id = submission.task_id
        future: asyncio.Future[DeliveryResult] = asyncio.get_running_loop().create_future()
        agent = self._agents.get(agent_name)
        if agent is None and await self._journal.find(task_id) is not None:
            # The journal was adopted from a host of the agent.
            await get_account_row(self._journal, task_id, submission.account)
            self._group.create_task(self._read_result(task_id, future))
            return future
        if agent is None:
            raise AgentNotFoundError(agent_name)
        found = await self._handler.deliver(agent, message, submission, without_payload(envelope))
        if isinstance(found, SubmitResult):
            self._group.create_task(self._read_result(task_id, future))
        else:
            found.on_released.append(partial(self._on_released, found, future))
        return future

    def _on_released(
        self, execution: TaskExecution, future: asyncio.Future[DeliveryResult]
    ) -> None:
        """Set the result of a delivery whose turn has ended."""
        turn = execution.turn
        latest = self._journal.latest(execution.task_id)
        state = None if latest is None else latest[1]
        if turn is not None and turn.reply_message is not None:
            replies = read_direct_reply(turn.reply_message)
            future.set_result(DeliveryResult(State.TASK_STATE_COMPLETED, "", replies))
        elif latest is None and not self._is_closing:
            # It was not created, or so many tasks have ended that its row is not in memory.
            self._group.create_task(self._read_result(execution.task_id, future, execution))
        elif state not in TERMINAL | INTERRUPTED or self._is_closing:
            future.set_exception(build_creation_error(execution))
        elif state == State.TASK_STATE_COMPLETED and turn and not turn.has_artifacts:
            # The common case, which need not read the task.
            future.set_result(DeliveryResult(State.TASK_STATE_COMPLETED))
        else:
            self._group.create_task(self._read_result(execution.task_id, future))

    async def _read_result(
        self,
        task_id: str,
        future: asyncio.Future[DeliveryResult],
        execution: TaskExecution | None = None,
    ) -> None:
        """Set the result of a delivery to what its task has, once its turn is over.

        `execution` is the execution that should have created the task.
        """
        try:
            if execution is not None and await self._journal.find(task_id) is None:
                raise build_creation_error(execution)
            result = read_result(await wait_for_turn_end(self._journal, task_id))
        except TrunklineError as error:
            future.set_exception(error)
        else:
            future.set_result(result)
