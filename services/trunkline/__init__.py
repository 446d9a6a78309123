"""Trunkline, a mesh for AI agents: the public API.

An agent is a function that takes a task, and `run` puts it on a mesh:

    from trunkline import agent, run

    @agent(description="Greets people by name.", tags=["hello", "greet"])
    async def hello(task):
        return f"Hello, {task.text}!"

    if __name__ == "__main__":
        run(hello)

Each name is imported at its first use, because every process of the mesh, down to the smallest MCP
server, imports this package.
"""

# No module is imported here, `typing` neither: commands need their own handling of Ctrl-C first.
# Type checkers take this name as true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from trunkline.a2a_client.answers import (
        ArtifactChange,
        ClientAnswer,
        ClientEvent,
        RequestedApproval,
        StatusChange,
        TextChunk,
    )
    from trunkline.a2a_client.client import Client
    from trunkline.a2a_client.client_stream import ClientStream
    from trunkline.a2a_client.remote_agent import from_a2a
    from trunkline.agents.authoring import FunctionAgent, agent
    from trunkline.agents.langgraph import from_langgraph, get_task
    from trunkline.agents.plugins import (
        AgentPlugin,
        McpServer,
        PluginContext,
        ReasoningAgentSpec,
    )
    from trunkline.core.json_values import read_json, write_json
    from trunkline.core.task_states import TaskOutcome, TaskState
    from trunkline.errors import (
        AgentCallError,
        AgentError,
        AgentNotFoundError,
        InvalidArgumentError,
        PeerError,
        PeerRefusedError,
        PeerTimeoutError,
        PeerUnavailableError,
        RequestError,
        TaskNotCancelableError,
        TaskNotFoundError,
        TrunklineError,
    )
    from trunkline.messages.types import (
        Broadcast,
        EvaluationRequest,
        EvaluationResult,
        Proposal,
        SystemMessage,
        UserMessage,
        message_type,
    )
    from trunkline.processes.run import run, serve
    from trunkline.tasks.approvals import ApprovalAnswer, ApprovalDecision
    from trunkline.tasks.calls import AgentAnswer, AgentStream, ToolResult
    from trunkline.tasks.context import TaskContext
    from trunkline.tasks.messages import MeshMessage, Reply
    from trunkline.tasks.turn_runtime import TurnRuntime, get_turn_runtime
    from trunkline.tasks.writers import ArtifactWriter, PlanWriter, ToolCall
    from trunkline.v1.agent_card_pb2 import AgentSkill
    from trunkline.v1.artifact_pb2 import Artifact
    from trunkline.v1.event_pb2 import PlanStep
    from trunkline.v1.message_pb2 import Message
    from trunkline.v1.part_pb2 import Part
    from trunkline.workflows.agent import from_workflow
    from trunkline.workflows.builders import WorkflowBuilder, save_workflow
    from trunkline.workflows.definition import Workflow
    from trunkline.workflows.plugins import WorkflowPlugin
    from trunkline.workflows.validation import load_workflow

__version__: str

__all__ = [
    "AgentAnswer",
    "AgentCallError",
    "AgentError",
    "AgentNotFoundError",
    "AgentPlugin",
    "AgentSkill",
    "AgentStream",
    "ApprovalAnswer",
    "ApprovalDecision",
    "Artifact",
    "ArtifactChange",
    "ArtifactWriter",
    "Broadcast",
    "Client",
    "ClientAnswer",
    "ClientEvent",
    "ClientStream",
    "EvaluationRequest",
    "EvaluationResult",
    "FunctionAgent",
    "InvalidArgumentError",
    "McpServer",
    "MeshMessage",
    "Message",
    "Part",
    "PeerError",
    "PeerRefusedError",
    "PeerTimeoutError",
    "PeerUnavailableError",
    "PlanStep",
    "PlanWriter",
    "PluginContext",
    "Proposal",
    "ReasoningAgentSpec",
    "Reply",
    "RequestError",
    "RequestedApproval",
    "StatusChange",
    "SystemMessage",
    "TaskContext",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TaskOutcome",
    "TaskState",
    "TextChunk",
    "ToolCall",
    "ToolResult",
    "TrunklineError",
    "TurnRuntime",
    "UserMessage",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowPlugin",
    "__version__",
    "agent",
    "from_a2a",
    "from_langgraph",
    "from_workflow",
    "get_task",
    "get_turn_runtime",
    "load_workflow",
    "message_type",
    "read_json",
    "run",
    "save_workflow",
    "serve",
    "write_json",
]

_MODULES = {
    "AgentAnswer": "trunkline.tasks.calls",
    "AgentCallError": "trunkline.errors",
    "AgentError": "trunkline.errors",
    "AgentNotFoundError": "trunkline.errors",
    "AgentPlugin": "trunkline.agents.plugins",
    "AgentSkill": "trunkline.v1.agent_card_pb2",
    "AgentStream": "trunkline.tasks.calls",
    "ApprovalAnswer": "trunkline.tasks.approvals",
    "ApprovalDecision": "trunkline.tasks.approvals",
    "Artifact": "trunkline.v1.artifact_pb2",
    "ArtifactChange": "trunkline.a2a_client.answers",
    "ArtifactWriter": "trunkline.tasks.writers",
    "Broadcast": "trunkline.messages.types",
    "Client": "trunkline.a2a_client.client",
    "ClientAnswer": "trunkline.a2a_client.answers",
    "ClientEvent": "trunkline.a2a_client.answers",
    "ClientStream": "trunkline.a2a_client.client_stream",
    "EvaluationRequest": "trunkline.messages.types",
    "EvaluationResult": "trunkline.messages.types",
    "FunctionAgent": "trunkline.agents.authoring",
    "InvalidArgumentError": "trunkline.errors",
    "McpServer": "trunkline.agents.plugins",
    "MeshMessage": "trunkline.tasks.messages",
    "Message": "trunkline.v1.message_pb2",
    "Part": "trunkline.v1.part_pb2",
    "PeerError": "trunkline.errors",
    "PeerRefusedError": "trunkline.errors",
    "PeerTimeoutError": "trunkline.errors",
    "PeerUnavailableError": "trunkline.errors",
    "PlanStep": "trunkline.v1.event_pb2",
    "PlanWriter": "trunkline.tasks.writers",
    "PluginContext": "trunkline.agents.plugins",
    "Proposal": "trunkline.messages.types",
    "ReasoningAgentSpec": "trunkline.agents.plugins",
    "Reply": "trunkline.tasks.messages",
    "RequestError": "trunkline.errors",
    "RequestedApproval": "trunkline.a2a_client.answers",
    "StatusChange": "trunkline.a2a_client.answers",
    "SystemMessage": "trunkline.messages.types",
    "TaskContext": "trunkline.tasks.context",
    "TaskNotCancelableError": "trunkline.errors",
    "TaskNotFoundError": "trunkline.errors",
    "TaskOutcome": "trunkline.core.task_states",
    "TaskState": "trunkline.core.task_states",
    "TextChunk": "trunkline.a2a_client.answers",
    "ToolCall": "trunkline.tasks.writers",
    "ToolResult": "trunkline.tasks.calls",
    "TrunklineError": "trunkline.errors",
    "TurnRuntime": "trunkline.tasks.turn_runtime",
    "UserMessage": "trunkline.messages.types",
    "Workflow": "trunkline.workflows.definition",
    "WorkflowBuilder": "trunkline.workflows.builders",
    "WorkflowPlugin": "trunkline.workflows.plugins",
    "agent": "trunkline.agents.authoring",
    "from_a2a": "trunkline.a2a_client.remote_agent",
    "from_langgraph": "trunkline.agents.langgraph",
    "from_workflow": "trunkline.workflows.agent",
    "get_task": "trunkline.agents.langgraph",
    "get_turn_runtime": "trunkline.tasks.turn_runtime",
    "load_workflow": "trunkline.workflows.validation",
    "message_type": "trunkline.messages.types",
    "read_json": "trunkline.core.json_values",
    "run": "trunkline.processes.run",
    "save_workflow": "trunkline.workflows.builders",
    "serve": "trunkline.processes.run",
    "write_json": "trunkline.core.json_values",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("trunkline")
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
