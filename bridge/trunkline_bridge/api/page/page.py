"""Composes the page: its files and its API, below `/ui`."""

from starlette.routing import BaseRoute, Route

from trunkline.core.settings import Settings
from trunkline.mesh.client import Directory
from trunkline.observe.audit import AuditLog
from trunkline_bridge.a2a.cards.agent_cards import AgentCards
from trunkline_bridge.api.json_resource import BuildHandler, json_routes
from trunkline_bridge.api.messages.http import MessageBinding
from trunkline_bridge.api.messages.operations import MessageOperations
from trunkline_bridge.api.page.access import PageAccess
from trunkline_bridge.api.page.approvals import PageApprovals
from trunkline_bridge.api.page.audit import PageAudit
from trunkline_bridge.api.page.binding import (
    API_PATH,
    HEADERS,
    PageStreams,
    Paths,
    build_headers,
    read_parameters,
)
from trunkline_bridge.api.page.files import PageFiles
from trunkline_bridge.api.page.inspector import PageInspector
from trunkline_bridge.api.page.mesh import PageMesh
from trunkline_bridge.api.page.session import PageSession, find_issuer_origin
from trunkline_bridge.api.page.tasks import PageTasks
from trunkline_bridge.api.page.tool_sign_ins import PageToolSignIns
from trunkline_bridge.api.page.traces import PageTraces
from trunkline_bridge.api.page.webhooks import PageWebhooks
from trunkline_bridge.api.page.wire import PageWire
from trunkline_bridge.api.page.workflows import PageWorkflows
from trunkline_bridge.api.workflows.operations import WorkflowOperations
from trunkline_bridge.callers.caller import CallerFactory, SecurityRequirements
from trunkline_bridge.callers.streams import CallerStreams
from trunkline_bridge.http.pages import Page


class PageBinding:
    """The routes of the page."""

    def __init__(  # noqa: PLR0913  one for each collaborator
        self,
        directory: Directory,
        settings: Settings,
        callers: CallerFactory,
        security: SecurityRequirements,
        messages: MessageOperations,
        workflows: WorkflowOperations,
        cards: AgentCards,
        caller_streams: CallerStreams,
        audit: AuditLog | None,
    ) -> None:
        """Compose the page. ConfigurationError: a setting of it is wrong."""
        page = settings.page
        access = PageAccess(page.operators, is_anonymous_only=security.is_anonymous_only)
        streams = PageStreams(caller_streams)
        origin = find_issuer_origin(page.oidc_issuer, page.oidc_client_id)
        self._callers = callers
        # Below `/ui`, because reads there make no spans.
        self._messages = MessageBinding(messages, callers, root=API_PATH, headers=HEADERS)
        self._files = PageFiles(build_headers(origin))
        self._session = PageSession(
            directory, settings, security, access, has_workflows=workflows.has_catalog
        )
        self._parts: list[Paths] = [
            self._session.paths(),
            PageMesh(directory, messages, access, streams).paths(),
            PageToolSignIns(directory, access, audit).paths(),
            PageTraces(directory, workflows, access, streams).paths(),
            PageTasks(directory, workflows, access, streams).paths(),
            PageWire(directory, settings, cards, audit).paths(),
            PageWorkflows(workflows, access).paths(),
            PageWebhooks(directory, access, streams, audit).paths(),
            PageApprovals(directory, streams).paths(),
            PageAudit(audit, access, streams).paths(),
            PageInspector(page.inspect_allow, access, streams, audit).paths(),
        ]

    def routes(self, build_handler: BuildHandler) -> list[BaseRoute]:
        """Return the routes; `build_handler` builds the application of each of the API."""
        paths = {path: handlers for part in self._parts for path, handlers in part.items()}
        return [
            Route("/ui", Page(self._files.redirect)),
            Route("/ui/", Page(self._files.index)),
            Route("/ui/assets/{path:path}", Page(self._files.asset)),
            Route(f"{API_PATH}/sign-in", Page(self._session.sign_in)),
            *self._messages.routes(build_handler),
            *json_routes(
                paths,
                self._callers,
                build_handler,
                name="page",
                read_query=read_parameters,
                headers=HEADERS,
            ),
        ]
