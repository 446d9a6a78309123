"""The Argo CD agent: its card, whose tags decide routing without a model, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, ReasoningAgentSpec
from trunkline_agents.argocd.settings import ArgoCDSettings, build_servers

_STATUS = AgentSkill(
    id="status",
    name="Argo CD",
    description="Shows Argo CD's version, and its applications with health, history and diff.",
    tags=[
        *("argocd", "argo cd", "application", "applications", "app", "apps"),
        *("gitops", "kubernetes", "cluster", "out of sync", "unhealthy", "degraded"),
    ],
    examples=["show argocd version", "list argocd applications", "diff of app guestbook"],
)
_SYNC = AgentSkill(
    id="sync",
    name="Sync an application",
    description="Syncs an application, once a person has approved it.",
    tags=["sync", "deploy"],
    examples=["sync app guestbook"],
)


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="argocd",
        description="Shows what Argo CD has deployed and how it is, and syncs it with approval.",
        skills=[_STATUS, _SYNC],
        servers=["argocd"],
    ),
    servers=build_servers,
    settings_type=ArgoCDSettings,
)
