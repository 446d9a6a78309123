"""The servicer of trunkline.v1.MessageService: submits messages to the agents of a host."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from trunkline.server.handlers import (
    OpenStream,
    StreamOpener,
    encode_direct_reply,
    encode_message_responses,
)
from trunkline.tasks.host import TaskHost
from trunkline.tasks.watch import TaskWatch
from trunkline.v1 import message_pb2, message_service_pb2

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICE = message_service_pb2.DESCRIPTOR.services_by_name["MessageService"].full_name


class MessageServicer:
    """Submits messages to a host's agents. A task continues when its caller leaves."""

    def __init__(self, host: TaskHost) -> None:
        self._host = host

    async def SendMessage(
        self, request: message_service_pb2.SendMessageRequest, _context: _Context
    ) -> message_service_pb2.SendMessageResponse:
        accepted = await self._host.submit(request.agent, request.message, request.submission)
        if isinstance(accepted, message_pb2.Message):
            return message_service_pb2.SendMessageResponse(message=accepted)
        if request.return_immediately:
            snapshot = await self._host.snapshot(
                accepted.task_id, account=request.submission.account
            )
        else:
            snapshot = await self._host.wait_turn(accepted.task_id)
        return message_service_pb2.SendMessageResponse(snapshot=snapshot)

    async def StreamMessage(
        self, request: message_service_pb2.StreamMessageRequest, _context: _Context
    ) -> AsyncIterator[bytes]:
        submitted = await self._submit(request)
        if isinstance(submitted, message_pb2.Message):
            yield encode_direct_reply(submitted)
            return
        async for frame in submitted:
            for response in encode_message_responses(frame):
                yield response

    async def open_stream_message(self, request: bytes) -> OpenStream:
        """Open the stream of StreamMessage for a trunk."""
        submitted = await self._submit(message_service_pb2.StreamMessageRequest.FromString(request))
        if isinstance(submitted, message_pb2.Message):
            return OpenStream(encode_direct_reply(submitted), None)
        response = message_service_pb2.StreamMessageResponse(snapshot=await submitted.snapshot())
        return OpenStream(response.SerializeToString(), submitted)

    async def _submit(
        self, request: message_service_pb2.StreamMessageRequest
    ) -> TaskWatch | message_pb2.Message:
        accepted = await self._host.submit(request.agent, request.message, request.submission)
        if isinstance(accepted, message_pb2.Message):
            return accepted
        return self._host.watch(
            accepted.task_id,
            account=request.submission.account,
            after=accepted.after,
            with_snapshot=True,
            until_turn_ends=True,
        )

    def stream_openers(self) -> dict[str, StreamOpener]:
        """Return the openers of streams on a trunk, by method name."""
        return {"StreamMessage": self.open_stream_message}

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """Return the handlers by method name. Responses of streams are serialized already."""
        send, stream = (
            message_service_pb2.SendMessageRequest,
            message_service_pb2.StreamMessageRequest,
        )
        return {
            "SendMessage": grpc.unary_unary_rpc_method_handler(
                self.SendMessage,
                request_deserializer=send.FromString,
                response_serializer=message_service_pb2.SendMessageResponse.SerializeToString,
            ),
            "StreamMessage": grpc.unary_stream_rpc_method_handler(
                self.StreamMessage, request_deserializer=stream.FromString
            ),
        }
