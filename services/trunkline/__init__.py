"""Trunkline: a mesh for AI agents. This is its public door.

An agent is a function that takes a task, and `run` puts it on a mesh:

    from trunkline import agent, run

    @agent(name="hello", description="Greets people by name.", tags=["hello", "greet"])
    async def hello(task):
        return f"Hello, {task.text}!"

    if __name__ == "__main__":
        run(hello)
"""

from trunkline.agents.authoring import agent
from trunkline.agents.process import run
from trunkline.tasks.context import TaskContext
from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
from trunkline.v1.agent_card_pb2 import AgentSkill
from trunkline.v1.event_pb2 import PlanStep
from trunkline.v1.message_pb2 import Message
from trunkline.v1.part_pb2 import Part

__all__ = [
    "AgentSkill",
    "ArtifactWriter",
    "Message",
    "Part",
    "PlanStep",
    "PlanWriter",
    "TaskContext",
    "ToolCall",
    "agent",
    "run",
]
