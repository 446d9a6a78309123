"""The Argo CD agent: its card, whose tags decide routing, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, ReasoningAgentSpec
from trunkline_agents.argocd.settings import ArgoCDSettings, build_servers

_STATUS = AgentSkill(
    id="status",
    name="Argo CD",
    description="Shows Argo CD's version, and its applications with health, history and diff.",
    tags=[
        *("argocd", "argo", "argo cd", "application", "applications", "app", "apps"),
        *("gitops", "kubernetes", "k8s", "cluster", "deployment", "deployments", "rollout"),
        *("out of sync", "synced", "unhealthy", "degraded"),
        *("in sync", "healthy", "rollouts", "release history"),
    ],
    examples=["show argocd version", "list argocd applications", "diff of app guestbook"],
)
_SYNC = AgentSkill(
    id="sync",
    name="Sync an application",
    description="Syncs an application, once a person has approved it.",
    tags=["sync", "resync", "deploy", "redeploy"],
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
