"""An agent on a2a-sdk 1.x, over its three bindings."""

import asyncio
import uuid
from typing import Any

import grpc
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2, a2a_pb2_grpc
from starlette.applications import Starlette

from partners.serving import behave, open_listener, serve


class Executor(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        message = context.message
        assert message is not None
        if text.startswith("message "):
            reply = a2a_pb2.Message(message_id=str(uuid.uuid4()), role=a2a_pb2.ROLE_AGENT)
            reply.parts.add(text=text.removeprefix("message "))
            await event_queue.enqueue_event(reply)
            return
        task = context.current_task
        is_answer = task is not None
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await behave(text, updater, lambda text_: a2a_pb2.Part(text=text_), is_answer=is_answer)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    listener, url = open_listener()
    server: Any = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    card = a2a_pb2.AgentCard(
        name="Partner One",
        description="Made with the reference SDK.",
        version="1.0.0",
        capabilities=a2a_pb2.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[a2a_pb2.AgentSkill(id="s", name="s", description="s", tags=["partner"])],
        supported_interfaces=[
            a2a_pb2.AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")
            for url, binding in (
                (f"{url}/rpc", "JSONRPC"),
                (f"{url}/rest", "HTTP+JSON"),
                (f"127.0.0.1:{port}", "GRPC"),
            )
        ],
    )
    handler = DefaultRequestHandler(Executor(), InMemoryTaskStore(), card)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)  # type: ignore[no-untyped-call]
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc"),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    await serve(Starlette(routes=routes), listener, url, server)


if __name__ == "__main__":
    asyncio.run(main())
