"""The servicer of trunkline.v1.MessageService: submits messages to the agents of a host."""

import asyncio
from typing import Any, Final, TypeAlias

import grpc

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.identity import Role, StatementVerifier
from trunkline.core.users import approving_users
from trunkline.errors import InvalidArgumentError, PermissionDeniedError, TrunklineError
from trunkline.mesh.server.authorization import caller
from trunkline.mesh.server.batch_stream import BatchStream
from trunkline.mesh.server.outcome_stream import OutcomeStream
from trunkline.observe import telemetry
from trunkline.tasks.host import TaskHost
from trunkline.v1 import message_pb2, message_service_pb2, message_service_pb2_grpc

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

# Each costs a verification of a signature.
_MAX_APPROVERS: Final = 100
# Other calls are answered between so many deliveries.
_DELIVERIES_AT_ONCE: Final = 100
SERVICE = message_service_pb2.DESCRIPTOR.services_by_name["MessageService"].full_name


class MessageServicer(message_service_pb2_grpc.MessageServiceServicer):
    """Submits messages to a host's agents. A task continues when its caller disconnects."""

    def __init__(self, host: TaskHost, statements: StatementVerifier | None = None) -> None:
        """`statements` verifies the statements of users who approved calls."""
        self._host = host
        self._statements = statements

    async def SendMessage(
        self, request: message_service_pb2.SendMessageRequest, context: _Context
    ) -> message_service_pb2.SendMessageResponse:
        submission = request.submission
        await self._note_approving_users(submission)
        result = await self._host.submit(
            request.agent, request.message, submission, is_held=request.return_immediately
        )
        if isinstance(result, message_pb2.Message):
            return message_service_pb2.SendMessageResponse(message=result)
        if not request.return_immediately:
            snapshot = await self._host.wait_turn(result.task_id, result.snapshot)
            return message_service_pb2.SendMessageResponse(snapshot=snapshot)
        # The type stubs know classes only.
        context.add_done_callback(lambda _: result.start())  # type: ignore[arg-type]
        snapshot = result.snapshot or await self._host.snapshot(
            result.task_id, account=submission.account
        )
        return message_service_pb2.SendMessageResponse(snapshot=snapshot)

    # Coroutines whose carrier takes the batches. The generated stubs know only iterators.
    async def StreamMessage(  # type: ignore[override]
        self, request: message_service_pb2.StreamMessageRequest, _context: _Context
    ) -> BatchStream:
        submission = request.submission
        await self._note_approving_users(submission)
        result = await self._host.submit(request.agent, request.message, submission, is_held=True)
        if isinstance(result, message_pb2.Message):
            return BatchStream(message_service_pb2.StreamMessageResponse(message=result))
        watch = await self._host.watch(
            result.task_id,
            account=submission.account,
            after=result.after,
            with_snapshot=True,
            until_turn_ends=True,
        )
        snapshot = result.snapshot or await watch.snapshot()
        response = message_service_pb2.StreamMessageResponse(snapshot=snapshot)
        return BatchStream(response, watch, result.start)

    async def DeliverMessages(  # type: ignore[override]
        self, request: message_service_pb2.DeliverMessagesRequest, _context: _Context
    ) -> BatchStream:
        identity = caller.get(None)
        if identity is not None and identity.role is not Role.MEMBER:
            raise PermissionDeniedError(str(identity), "deliver messages between agents")
        stream = OutcomeStream()
        for number, delivery in enumerate(request.deliveries, start=1):
            submission = message_service_pb2.Submission(
                account=request.account, caller=request.caller, task_id=delivery.task_id
            )
            if delivery.envelope.HasField("expire_time"):
                submission.deadline.CopyFrom(delivery.envelope.expire_time)
            with telemetry.use_context(telemetry.extract({"traceparent": delivery.traceparent})):
                try:
                    result = await self._host.deliver(request.agent, delivery.envelope, submission)
                except TrunklineError as error:
                    stream.add_error(delivery.task_id, error)
                else:
                    stream.add(delivery.task_id, result)
            if not number % _DELIVERIES_AT_ONCE:
                await asyncio.sleep(0)
        return BatchStream(message_service_pb2.DeliverMessagesResponse(), stream)

    async def _note_approving_users(self, submission: message_service_pb2.Submission) -> None:
        """Set the users who gave the answers that a parent passes on.

        Raises:
            InvalidArgumentError: there are too many.
            UserNotProvenError: a statement is not valid.
        """
        statements = submission.approval_statements
        if not statements or self._statements is None:
            return
        if len(statements) > _MAX_APPROVERS:
            raise InvalidArgumentError(
                "submission.approval_statements", f"has more than {_MAX_APPROVERS} statements"
            )
        users = [await self._statements.verify(statement) for statement in statements]
        account = submission.account or ANONYMOUS_ACCOUNT
        approving_users.set([user for user in users if user.account == account])
