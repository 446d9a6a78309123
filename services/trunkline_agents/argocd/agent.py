"""The Argo CD agent's card. What it can do is its MCP server's affair; tags decide routing."""

from trunkline.reasoning import ModelChoice, ReasoningAgent, ToolSource
from trunkline.v1 import agent_card_pb2

_STATUS = agent_card_pb2.AgentSkill(
    id="status",
    name="Argo CD",
    description="Shows Argo CD's version, and its applications with health, history and diff.",
    tags=[
        *("argocd", "argo", "argo cd", "application", "applications", "app", "apps"),
        *("gitops", "kubernetes", "k8s", "cluster", "deployment", "deployments", "rollout"),
        *("out of sync", "synced", "unhealthy", "degraded"),
    ],
    examples=["show argocd version", "list argocd applications", "diff of app guestbook"],
)
_SYNC = agent_card_pb2.AgentSkill(
    id="sync",
    name="Sync an application",
    description="Syncs an application, once a person has approved it.",
    tags=["sync", "resync", "deploy", "redeploy"],
    examples=["sync app guestbook"],
)


def agent(tools: ToolSource, model: ModelChoice | None = None) -> ReasoningAgent:
    """Return the agent, which calls the tools of the MCP server `argocd`."""
    card = agent_card_pb2.AgentCard(
        name="argocd",
        description="Shows what Argo CD has deployed and how it is, and syncs it with approval.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[_STATUS, _SYNC],
    )
    return ReasoningAgent(card, servers=["argocd"], tools=tools, model=model)
