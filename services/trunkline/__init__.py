"""Trunkline: a mesh for AI agents. This is its public door.

An agent is a function that takes a task, and `run` puts it on a mesh:

    from trunkline import agent, run

    @agent(name="hello", description="Greets people by name.", tags=["hello", "greet"])
    async def hello(task):
        return f"Hello, {task.text}!"

    if __name__ == "__main__":
        run(hello)

What is behind the door is loaded when it is asked for, since every process of the mesh, down to the
smallest MCP server, comes through here.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.agents.authoring import FunctionAgent, agent
    from trunkline.agents.langgraph import from_langgraph
    from trunkline.agents.plugins import (
        AgentPlugin,
        McpServer,
        PluginContext,
        ReasoningAgentSpec,
    )
    from trunkline.agents.process import run
    from trunkline.mesh.remotes import from_a2a
    from trunkline.tasks.approvals import ApprovalDecision
    from trunkline.tasks.context import TaskContext
    from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
    from trunkline.v1.agent_card_pb2 import AgentSkill
    from trunkline.v1.event_pb2 import ApprovalAnswered, PlanStep
    from trunkline.v1.message_pb2 import Message
    from trunkline.v1.part_pb2 import Part

__all__ = [
    "AgentPlugin",
    "AgentSkill",
    "ApprovalAnswered",
    "ApprovalDecision",
    "ArtifactWriter",
    "FunctionAgent",
    "McpServer",
    "Message",
    "Part",
    "PlanStep",
    "PlanWriter",
    "PluginContext",
    "ReasoningAgentSpec",
    "TaskContext",
    "ToolCall",
    "agent",
    "from_a2a",
    "from_langgraph",
    "run",
]

_HOMES = {
    "AgentPlugin": "trunkline.agents.plugins",
    "AgentSkill": "trunkline.v1.agent_card_pb2",
    "ApprovalAnswered": "trunkline.v1.event_pb2",
    "ApprovalDecision": "trunkline.tasks.approvals",
    "ArtifactWriter": "trunkline.tasks.writers",
    "FunctionAgent": "trunkline.agents.authoring",
    "McpServer": "trunkline.agents.plugins",
    "Message": "trunkline.v1.message_pb2",
    "Part": "trunkline.v1.part_pb2",
    "PlanStep": "trunkline.v1.event_pb2",
    "PlanWriter": "trunkline.tasks.writers",
    "PluginContext": "trunkline.agents.plugins",
    "ReasoningAgentSpec": "trunkline.agents.plugins",
    "TaskContext": "trunkline.tasks.context",
    "ToolCall": "trunkline.tasks.writers",
    "agent": "trunkline.agents.authoring",
    "from_a2a": "trunkline.mesh.remotes",
    "from_langgraph": "trunkline.agents.langgraph",
    "run": "trunkline.agents.process",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
