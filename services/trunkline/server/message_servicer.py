"""Serves trunkline.v1.MessageService: takes messages for the agents of a host."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc

from trunkline.server.handlers import (
    OpenStream,
    StreamOpener,
    encode_direct_reply,
    encode_message_responses,
)
from trunkline.tasks.serving import Tasks
from trunkline.tasks.watch import TaskWatch
from trunkline.v1 import message_pb2, message_service_pb2

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICE = message_service_pb2.DESCRIPTOR.services_by_name["MessageService"].full_name


class MessageServicer:
    """Gives messages to a host's agents. When a caller leaves, its task goes on."""

    def __init__(self, host: Tasks) -> None:
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
        begun = await self._begin(request)
        if isinstance(begun, message_pb2.Message):
            yield encode_direct_reply(begun)
            return
        async for frame in begun:
            for response in encode_message_responses(frame):
                yield response

    async def open_stream_message(self, request: bytes) -> OpenStream:
        """Begin what StreamMessage does, for a reader that pulls."""
        begun = await self._begin(message_service_pb2.StreamMessageRequest.FromString(request))
        if isinstance(begun, message_pb2.Message):
            return OpenStream(encode_direct_reply(begun), None)
        response = message_service_pb2.StreamMessageResponse(snapshot=await begun.snapshot())
        return OpenStream(response.SerializeToString(), begun)

    async def _begin(
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
        """Return what begins the streams of the trunk, by method."""
        return {"StreamMessage": self.open_stream_message}

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """Return the methods by name; the stream's responses are bytes already."""
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
