"""Composes the bridge: its HTTP routes, its gRPC handlers and its webhook delivery."""

from collections.abc import Collection
from importlib.util import find_spec

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from trunkline.a2a_wire.errors import WireError
from trunkline.core.settings import Settings, describe_install
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.safe_fetch.address_guard import AddressGuard
from trunkline.observe.audit import AuditLog
from trunkline.observe.metrics.prometheus import PrometheusMetrics
from trunkline_bridge.a2a.bindings.grpc import GrpcBinding, MessageLimits
from trunkline_bridge.a2a.bindings.jsonrpc import JsonRpcBinding
from trunkline_bridge.a2a.bindings.rest import RestBinding
from trunkline_bridge.a2a.cards.agent_cards import AgentCards, load_signer
from trunkline_bridge.a2a.cards.card_endpoints import CardEndpoints
from trunkline_bridge.a2a.operations.files import FileBinding
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.a2a.projection.links import FILES_PATH
from trunkline_bridge.a2a.versions.v0_1.task_aliases import TaskAliases
from trunkline_bridge.a2a.webhooks.delivery import WebhookDeliverer
from trunkline_bridge.a2a.webhooks.registration import WebhookRegistrations
from trunkline_bridge.a2a.webhooks.sender import WebhookSender
from trunkline_bridge.a2a.webhooks.signatures import WebhookSigner
from trunkline_bridge.api.health import HealthEndpoints
from trunkline_bridge.api.messages.http import MessageBinding
from trunkline_bridge.api.messages.operations import MessageOperations
from trunkline_bridge.api.messages.room_socket import RoomSockets
from trunkline_bridge.api.metrics_page import MetricsPage
from trunkline_bridge.api.page.page import PageBinding
from trunkline_bridge.api.workflows.catalog import WorkflowCatalog
from trunkline_bridge.api.workflows.operations import WorkflowOperations
from trunkline_bridge.callers.authentication import build_authenticator
from trunkline_bridge.callers.caller import Authenticator, CallerFactory
from trunkline_bridge.callers.request_rates import RequestRates
from trunkline_bridge.callers.streams import CallerStreams
from trunkline_bridge.http.bound_addresses import BoundAddresses
from trunkline_bridge.http.handler import Binding, HttpHandler, RefusingHandler
from trunkline_bridge.http.host_guard import HostGuard, with_origin_form
from trunkline_bridge.http.in_flight import InFlightRequests
from trunkline_bridge.http.messages import METRICS_PATH
from trunkline_bridge.http.pages import REFUSAL_KEY, Page, mount, not_found
from trunkline_bridge.http.requests import encode_segments
from trunkline_bridge.http.sse import Heartbeats
from trunkline_bridge.http.tracing import http_request_span


class Bridge:
    """The public side of a mesh: serves every registered agent over A2A.

    The bridge stores nothing between requests and looks up the agent of each request, so an agent
    is public as soon as it registers. `http` is the ASGI application, `grpc` has the gRPC handlers.

    The process that serves them keeps `directory` open and fills in `addresses`. Before it stops,
    it calls `abort_requests` and `grpc.abort_all`.
    """

    def __init__(
        self,
        directory: Directory,
        settings: Settings | None = None,
        *,
        authenticator: Authenticator | None = None,
        audit: AuditLog | None = None,
        catalog: WorkflowCatalog | None = None,
        metrics: PrometheusMetrics | None = None,
    ) -> None:
        """Compose the bridge. Without an authenticator, the settings decide how callers log in.

        Without an audit log, nothing is recorded. Without a catalog, no workflow is published here.
        Without metrics, there is no `/metrics`.

        Raises:
            ConfigurationError: a setting is wrong.
        """
        settings = settings or Settings()
        authenticator = authenticator or build_authenticator(settings)
        is_strict = settings.strict_versions
        self.addresses = BoundAddresses()
        self._host_guard = HostGuard(settings, self.addresses)
        cards = AgentCards(
            directory, settings, authenticator, self.addresses, load_signer(settings)
        )
        rates = RequestRates(settings.limits)
        streams = CallerStreams(settings.limits)
        callers = CallerFactory(authenticator, settings, rates, audit)
        guard = AddressGuard(settings.allow_webhook)
        webhooks = WebhookRegistrations(directory, guard)
        operations = Operations(directory, settings, cards, webhooks, streams, audit)
        signer = WebhookSigner(settings.webhook_secret) if settings.webhook_secret else None
        self._delivers_webhooks = settings.push_notifications
        self._deliverer = WebhookDeliverer(
            directory,
            WebhookSender(guard, signer),
            lambda: cards.file_links(""),
            lease_s=settings.lease_s,
            agent_view=settings.agent_view,
        )
        self.grpc = GrpcBinding(
            operations,
            callers,
            MessageLimits(settings.body_limit_bytes, settings.request_timeout_s),
            is_strict=is_strict,
        )
        in_flight = self._in_flight = InFlightRequests()
        heartbeats = Heartbeats(settings.heartbeat_s)

        def build_handler(binding: Binding) -> HttpHandler:
            return HttpHandler(binding, settings, in_flight, heartbeats)

        aliases = TaskAliases(directory)
        jsonrpc_binding = JsonRpcBinding(operations, callers, aliases, is_strict=is_strict)
        jsonrpc = build_handler(jsonrpc_binding)
        rest = RestBinding(operations, callers, is_strict=is_strict)
        card_endpoints = CardEndpoints(cards, callers, is_strict=is_strict)
        health = HealthEndpoints(directory, callers, settings.default_agent)
        files = FileBinding(directory, callers, patience_s=settings.patience_s, audit=audit)
        message_operations = MessageOperations(directory, streams, audit)
        messages = MessageBinding(message_operations, callers)
        rooms = RoomSockets(message_operations, callers, rates, in_flight)
        workflow_operations = WorkflowOperations(
            directory, operations, catalog, streams, audit, patience_s=settings.patience_s
        )

        def graphql_routes() -> list[BaseRoute]:
            if not settings.graphql.enabled:
                return []
            _check_graphql_extra()
            from trunkline_bridge.api.graphql.context import MeshAccess
            from trunkline_bridge.api.graphql.endpoint import GRAPHQL_PATH, GraphQLBinding
            from trunkline_bridge.api.graphql.schema import MeshSchema
            from trunkline_bridge.api.graphql.sockets import GraphQLSockets

            schema = MeshSchema(settings.graphql)
            mesh = MeshAccess(message_operations, workflow_operations, rates, settings.graphql)
            binding = build_handler(GraphQLBinding(schema, mesh, callers))
            sockets = GraphQLSockets(schema, mesh, callers, in_flight)
            return [Route(GRAPHQL_PATH, binding), WebSocketRoute(GRAPHQL_PATH, sockets)]

        page = (
            PageBinding(
                directory,
                settings,
                callers,
                authenticator.security,
                message_operations,
                workflow_operations,
                cards,
                streams,
                audit,
            )
            if settings.page.enabled
            else None
        )

        def agent_routes() -> list[BaseRoute]:
            return [Route("/", jsonrpc), *card_endpoints.routes(), *rest.routes(build_handler)]

        # The most frequent requests come first: the router tries one route after the other.
        self._router = Router(
            [
                Route("/", jsonrpc),
                Route("/agents/{agent:segment}", jsonrpc),
                mount("/agents/{agent:segment}", agent_routes()),
                Route(f"{FILES_PATH}{{path:path}}", build_handler(files)),
                Route("/healthz", Page(health.health)),
                Route("/readyz", Page(health.readiness)),
                *_metrics_routes(metrics, callers, settings),
                *messages.routes(build_handler),
                WebSocketRoute("/messages/rooms/{room:segment}/socket", rooms),
                *graphql_routes(),
                *(page.routes(build_handler) if page else ()),
                *card_endpoints.key_routes(),
                *agent_routes(),
            ],
            redirect_slashes=False,
            default=not_found,
        )

        # Browsers' preflight requests, which have no credentials, are answered first.
        self.http: ASGIApp = _allow_origins(self._serve_http, settings.allowed_origins)

        def build_refusal(binding: Binding) -> RefusingHandler:
            return RefusingHandler(binding, settings, heartbeats)

        jsonrpc_refusal = build_refusal(jsonrpc_binding)
        refusals = [
            Route("/", jsonrpc_refusal),
            *messages.routes(build_refusal),
            *rest.routes(build_refusal),
        ]
        self._refusal_router = Router(
            [
                Route("/agents/{agent:segment}", jsonrpc_refusal),
                mount("/agents/{agent:segment}", refusals),
                *refusals,
            ],
            redirect_slashes=False,
            default=not_found,
        )

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request within a span, unless its host is refused."""
        with http_request_span(scope, send) as request:
            router = self._router
            scope = with_origin_form(scope)
            try:
                scope = self._host_guard.check(scope)
            except WireError as error:
                router, scope = self._refusal_router, {**scope, REFUSAL_KEY: error}
            request.scope = encode_segments(scope)
            await router(request.scope, receive, request.send)

    async def deliver_webhooks(self) -> None:
        """Deliver webhooks until cancelled; return at once if the settings turn them off."""
        if self._delivers_webhooks:
            await self._deliverer.run()

    @property
    def in_flight_count(self) -> int:
        """The number of HTTP requests and gRPC calls in flight, streams included."""
        return len(self._in_flight) + len(self.grpc)

    def abort_requests(self) -> None:
        """End all HTTP requests in flight with an error that tells the client how to continue."""
        self._in_flight.abort_all()


def _allow_origins(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """Return an application that lets pages of these origins call it (CORS); `*` is all."""
    if not origins:
        return app
    # Pages send their own credentials. Without `allow_credentials`, browsers add none.
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("*",),
        allow_headers=("*",),
        expose_headers=("*",),
    )


def _metrics_routes(
    metrics: PrometheusMetrics | None, callers: CallerFactory, settings: Settings
) -> list[BaseRoute]:
    if metrics is None:
        return []
    page = MetricsPage(metrics, callers, is_public=settings.metrics.public)
    return [Route(METRICS_PATH, Page(page.respond))]


def _check_graphql_extra() -> None:
    """Raise ConfigurationError if the library is not installed."""
    if find_spec("strawberry") is None:
        problem = f"GraphQL needs an extra; run {describe_install('graphql')}"
        raise ConfigurationError("[graphql] enabled", problem)
