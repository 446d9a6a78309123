"""An A2A agent made with the reference SDK (a2a-sdk) alone, for the example remote.py.

`pip install 'a2a-sdk[http-server]'` brings the SDK. The agent serves http://127.0.0.1:9000, or the
port that is given: `python sdk_agent.py 9001`.
"""

import sys

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette


class Reverser(AgentExecutor):
    """Answers with the words in reverse order, one at a time."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Add one word at a time to an artifact."""
        if context.message is None:
            return
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        for number, word in enumerate(reversed(context.get_user_input().split())):
            text = f" {word}" if number else word
            await updater.add_artifact([Part(text=text)], artifact_id="words", append=number > 0)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Report the task as canceled; the SDK has stopped `execute`."""
        if task := context.current_task:
            await TaskUpdater(event_queue, task.id, task.context_id).cancel()


def main(port: int) -> None:
    """Serve the agent and its card on a port of this machine."""
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="Reverser",
        description="Reverses the order of words.",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            AgentSkill(id="reverse", name="Reverse", description="Reverses.", tags=["reverse"])
        ],
        supported_interfaces=[
            AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
    )
    handler = DefaultRequestHandler(Reverser(), InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
