"""An agent on a2a-sdk 0.3, over its three bindings, in the environment of scripts/partners."""

import asyncio
from importlib import import_module
from typing import Any

import grpc

from partners.serving import behave, open_listener, serve

# The type checker sees another version of the SDK.
types: Any = import_module("a2a.types")
execution: Any = import_module("a2a.server.agent_execution")
apps: Any = import_module("a2a.server.apps")
handlers: Any = import_module("a2a.server.request_handlers")
tasks: Any = import_module("a2a.server.tasks")
utils: Any = import_module("a2a.utils")
grpc_handler: Any = import_module("a2a.server.request_handlers.grpc_handler")
a2a_pb2_grpc: Any = import_module("a2a.grpc.a2a_pb2_grpc")


def part(text: str) -> Any:
    return types.Part(root=types.TextPart(text=text))


class Executor(execution.AgentExecutor):  # type: ignore[misc]
    async def execute(self, context: Any, event_queue: Any) -> None:
        text = context.get_user_input()
        if text.startswith("message "):
            reply = utils.new_agent_text_message(text.removeprefix("message "))
            await event_queue.enqueue_event(reply)
            return
        task = context.current_task
        is_answer = task is not None
        if task is None:
            task = utils.new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = tasks.TaskUpdater(event_queue, task.id, task.context_id)
        await behave(text, updater, part, is_answer=is_answer)

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await tasks.TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    listener, url = open_listener()
    server: Any = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    card = types.AgentCard(
        name="Partner Nought",
        description="Made with the reference SDK of A2A v0.3.",
        version="1.0.0",
        url=f"{url}/rpc",
        preferred_transport="JSONRPC",
        additional_interfaces=[
            types.AgentInterface(transport="HTTP+JSON", url=f"{url}/rest"),
            types.AgentInterface(transport="GRPC", url=f"127.0.0.1:{port}"),
        ],
        capabilities=types.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[types.AgentSkill(id="s", name="s", description="s", tags=["partner"])],
    )
    handler = handlers.DefaultRequestHandler(
        Executor(),
        tasks.InMemoryTaskStore(),
        push_config_store=tasks.InMemoryPushNotificationConfigStore(),
    )
    servicer = grpc_handler.GrpcHandler(card, handler)
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(servicer, server)
    app = apps.A2AStarletteApplication(card, handler).build(rpc_url="/rpc")
    rest = apps.A2ARESTFastAPIApplication(agent_card=card, http_handler=handler)
    app.mount("/rest", rest.build())
    await serve(app, listener, url, server)


if __name__ == "__main__":
    asyncio.run(main())
