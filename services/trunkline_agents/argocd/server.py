"""The Argo CD tools over MCP: six tools that read, and a tool that syncs."""

import argparse
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.argocd import patterns
from trunkline_agents.argocd.applications import (
    Application,
    Change,
    Deployment,
    Resource,
    abbreviate_revision,
    is_healthy,
    list_changes,
    list_problems,
    parse_application,
    parse_history,
    parse_resources,
    render_details,
    render_summary,
)
from trunkline_agents.argocd.client import ApplicationName, ArgoCDClient
from trunkline_agents.argocd.settings import COMMAND, TOKEN_VARIABLE
from trunkline_agents.mcp_server import (
    READ_ONLY_REMOTE,
    ToolAnswer,
    build_tool_server,
    run_stdio_server,
    tool,
)

_BUILT_WITH: Final = ("Kustomize", "Helm", "Kubectl")
_LIST_LIMIT: Final = 100
_HISTORY_LIMIT: Final = 20
_REVISION_CHARS: Final = 200
# A sync may replace and delete running resources, so a person approves each call.
_DESTRUCTIVE: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)

ApplicationState = Literal[
    "Synced",
    "OutOfSync",
    "Healthy",
    "Unhealthy",
    "Degraded",
    "Progressing",
    "Missing",
    "Suspended",
    "Unknown",
]
NameArgument = Annotated[
    str, Field(description="The application's name; NAMESPACE/NAME if it isn't Argo CD's own.")
]


class Version(TypedDict):
    """The server's version information; without a token, the version alone."""

    version: str
    build_date: str
    platform: str


class Applications(TypedDict):
    """Applications by name."""

    applications: list[Application]


class Health(TypedDict):
    """The health of an application, and its resources that are not healthy or in sync."""

    application: Application
    unwell: list[Resource]


class History(TypedDict):
    """The deployments, the newest first."""

    application: str
    deployments: list[Deployment]


class Diff(TypedDict):
    """The changes that a sync would make."""

    application: str
    changes: list[Change]


class Sync(TypedDict):
    """A sync that has started, or its dry run."""

    application: str
    revision: str
    phase: str
    is_dry_run: bool


class ArgoCDTools:
    """The tools of one Argo CD server."""

    def __init__(self, api: ArgoCDClient) -> None:
        self._api = api

    @tool(Version)
    async def version(self) -> ToolAnswer:
        """Show the version of the Argo CD server."""
        version = await self._api.version()
        data = Version(
            version=str(version.get("Version", "")),
            build_date=str(version.get("BuildDate", "")),
            platform=str(version.get("Platform", "")),
        )
        more = [f"built {data['build_date']}" if data["build_date"] else "", data["platform"]]
        versions = ((name, str(version.get(f"{name}Version") or "")) for name in _BUILT_WITH)
        more += [f"{name} {text.split()[0]}" for name, text in versions if text.strip()]
        details = ", ".join(filter(None, more))
        return ToolAnswer(f"Argo CD {data['version']}{f' ({details})' if details else ''}.", data)

    @tool(Applications)
    async def list_applications(
        self,
        project: Annotated[str, Field(description="Only applications of this project.")] = "",
        state: Annotated[
            ApplicationState | None,
            Field(description="Only applications in this state; Unhealthy: not Healthy."),
        ] = None,
    ) -> ToolAnswer:
        """List the applications with their sync state and their health."""
        applications = [
            parse_application(resource)
            for resource in await self._api.applications(project=project)
        ]
        matches = sorted(
            (application for application in applications if _matches(application, state)),
            key=lambda application: application["name"],
        )
        if not matches:
            of = f" in project {project}" if project else ""
            return ToolAnswer(
                f"No application{of} is {state or 'there'}.", Applications(applications=[])
            )
        count = f"{len(matches)} of {len(applications)}" if state else str(len(matches))
        text = f"{count} applications{f', {state}' if state else ''}:"
        lines = [f"- {render_summary(application)}" for application in matches[:_LIST_LIMIT]]
        if len(matches) > _LIST_LIMIT:
            lines.append(f"… and {len(matches) - _LIST_LIMIT} more; ask for those of one project")
        return ToolAnswer(
            "\n".join([text, *lines]), Applications(applications=matches[:_LIST_LIMIT])
        )

    @tool(Application)
    async def get_application(self, application: NameArgument) -> ToolAnswer:
        """Show an application: its source, destination, state and problems."""
        resource = await self._api.application(ApplicationName.parse(application))
        summary = parse_application(resource)
        return ToolAnswer(render_details(summary, resource), summary)

    @tool(Health)
    async def application_health(self, application: NameArgument) -> ToolAnswer:
        """Show the health of an application, and its resources that are not healthy or in sync."""
        resource = await self._api.application(ApplicationName.parse(application))
        summary = parse_application(resource)
        unhealthy = [part for part in parse_resources(resource) if not is_healthy(part)]
        lines = [
            f"{summary['name']} is {summary['health']} and {summary['sync']}.",
            *list_problems(resource),
        ]
        for part in unhealthy[:_LIST_LIMIT]:
            state = ", ".join(filter(None, (part["health"], part["sync"], part["message"])))
            lines.append(f"- {part['kind']} {part['name']}: {state}")
        return ToolAnswer(
            "\n".join(lines), Health(application=summary, unwell=unhealthy[:_LIST_LIMIT])
        )

    @tool(History)
    async def application_history(self, application: NameArgument) -> ToolAnswer:
        """Show the deployments of an application, with their times and users."""
        name = ApplicationName.parse(application)
        deployments = parse_history(await self._api.application(name))[:_HISTORY_LIMIT]
        lines = [_render_deployment(deployment) for deployment in deployments]
        first = f"{name} was deployed:" if lines else f"{name} was never deployed."
        data = History(application=str(name), deployments=deployments)
        return ToolAnswer("\n".join([first, *lines]), data)

    @tool(Diff)
    async def application_diff(self, application: NameArgument) -> ToolAnswer:
        """Show the changes that a sync would make, as diffs from the live to the desired state."""
        name = ApplicationName.parse(application)
        changes = list(list_changes(await self._api.managed_resources(name)))
        data = Diff(application=str(name), changes=changes)
        if not changes:
            return ToolAnswer(f"A sync of {name} would change nothing.", data)
        pieces = [f"A sync of {name} would change {len(changes)} of its resources:"]
        for change in changes:
            namespace = f" in {change['namespace']}" if change["namespace"] else ""
            head = f"{change['change']} {change['kind']} {change['name']}{namespace}"
            pieces.append(f"{head}\n```diff\n{change['diff']}\n```")
        return ToolAnswer("\n\n".join(pieces), data)

    @tool(Sync)
    async def sync_application(
        self,
        application: NameArgument,
        revision: Annotated[
            str,
            Field(description="A commit, tag or chart version; by default its source's."),
        ] = "",
        prune: Annotated[bool, Field(description="Delete what its source no longer has.")] = False,  # noqa: FBT002 tools have their arguments by name
        dry_run: Annotated[bool, Field(description="Try the sync without changes.")] = False,  # noqa: FBT002
    ) -> ToolAnswer:
        """Begin a sync of an application to the desired state of its source."""
        name = ApplicationName.parse(application)
        if len(revision) > _REVISION_CHARS:
            raise InvalidArgumentError("revision", "That is too long for a revision.")
        resource = await self._api.sync(name, revision=revision, prune=prune, dry_run=dry_run)
        state = (resource.get("status") or {}).get("operationState") or {}
        phase = str(state.get("phase") or "Running")
        data = Sync(application=str(name), revision=revision, phase=phase, is_dry_run=dry_run)
        to = f" to {abbreviate_revision(revision)}" if revision else ""
        action = "dry run of a sync" if dry_run else "sync"
        text = f"The {action} of {name}{to} has begun. Ask for its health to see how it goes."
        return ToolAnswer(text, data)


def _render_deployment(deployment: Deployment) -> str:
    by = f", by {deployment['by']}" if deployment["by"] else ""
    revision = abbreviate_revision(deployment["revision"])
    return f"- {deployment['deployed_at']}: {revision} (id {deployment['id']}{by})"


def _matches(application: Application, state: ApplicationState | None) -> bool:
    if state is None:
        return True
    if state == "Unhealthy":
        return application["health"] != "Healthy"
    return state in {application["sync"], application["health"]}


def build_server(tools: ArgoCDTools) -> MCPServer[Any]:
    """Return the MCP server with its seven tools."""
    reads = READ_ONLY_REMOTE
    return build_tool_server(
        COMMAND,
        (
            (tools.version, "Argo CD's version", reads, patterns.VERSION),
            (tools.list_applications, "List applications", reads, patterns.LIST),
            (tools.get_application, "Show an application", reads, patterns.GET),
            (tools.application_health, "Health of an application", reads, patterns.HEALTH),
            (tools.application_history, "History of an application", reads, patterns.HISTORY),
            (tools.application_diff, "Diff of an application", reads, patterns.DIFF),
            (tools.sync_application, "Sync an application", _DESTRUCTIVE, patterns.SYNC),
        ),
        title="Argo CD",
        instructions="Reads the applications of an Argo CD server, and syncs them.",
    )


def main() -> None:
    """Run the console script `trunkline-mcp-argocd`. The token is a variable, never an option."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="An MCP server for Argo CD.")
    parser.add_argument("--url", required=True, help="where its API is, without /api")
    parser.add_argument("--ca-file", type=Path, help="authorities of its certificate (PEM)")
    options = parser.parse_args()
    token = os.environ.get(TOKEN_VARIABLE, "")
    tools = ArgoCDTools(ArgoCDClient(options.url, token=token, ca_file=options.ca_file))
    run_stdio_server(lambda: build_server(tools).run_stdio_async(), service_name=COMMAND)
