"""Puts the bridge's HTTP side together."""

from collections.abc import Awaitable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trunkline.client import Directory
from trunkline.client.safe_fetch.address_guard import AddressGuard
from trunkline_bridge.bindings.files import FILES_PATH, FileBinding
from trunkline_bridge.bindings.grpc import GrpcBinding, MessageLimits
from trunkline_bridge.bindings.http_handler import HttpHandler, Served
from trunkline_bridge.bindings.jsonrpc import JsonRpcBinding
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.bindings.rest import RestBinding
from trunkline_bridge.edge.agent_cards import AgentCards, BoundAddresses, load_signer
from trunkline_bridge.edge.authentication import build_authenticator
from trunkline_bridge.edge.caller import Authenticator, CallerFactory, agent_in_path
from trunkline_bridge.edge.card_endpoints import CardEndpoints
from trunkline_bridge.edge.health import HealthEndpoints
from trunkline_bridge.edge.http import METHOD_NOT_ALLOWED, ROUTE_NOT_FOUND, error_response
from trunkline_bridge.edge.tracing import TraceMiddleware
from trunkline_bridge.errors import WireError
from trunkline_bridge.protocol import CARD_PATH
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.versions.v0_1.task_aliases import TaskAliases
from trunkline_bridge.webhooks.delivery import WebhookDeliverer
from trunkline_bridge.webhooks.registration import WebhookRegistrations
from trunkline_bridge.webhooks.sender import WebhookSender
from trunkline_bridge.webhooks.signatures import WebhookSigner

_SHOWN_LENGTH = 100


class Bridge:
    """The public side of a mesh: every agent on the registry speaks A2A here.

    It keeps nothing between requests, and looks agents up anew for each: one that registers is
    public at once. `app` is an ASGI application, `grpc` are A2A's calls over gRPC; whoever serves
    them also keeps `directory` open, tells `endpoints` where, and calls `cut` of both before it
    stops.
    """

    def __init__(
        self,
        directory: Directory,
        settings: BridgeSettings | None = None,
        *,
        authenticator: Authenticator | None = None,
    ) -> None:
        settings = settings or BridgeSettings()
        authenticator = authenticator or build_authenticator(settings)
        self.endpoints = BoundAddresses()
        cards = AgentCards(
            directory, settings, authenticator, self.endpoints, load_signer(settings)
        )
        health = HealthEndpoints(directory, settings.default_agent)
        callers = CallerFactory(authenticator, settings)
        guard = AddressGuard(settings.allow_webhook)
        operations = Operations(directory, settings, cards, WebhookRegistrations(directory, guard))
        signer = WebhookSigner(settings.webhook_secret) if settings.webhook_secret else None
        self._deliverer = WebhookDeliverer(
            directory,
            WebhookSender(guard, signer),
            lambda: cards.links(""),
            lease_s=settings.lease_s,
        )
        bounds = MessageLimits(settings.body_limit_bytes, settings.request_timeout_s)
        self.grpc = GrpcBinding(operations, callers, bounds, is_strict=settings.strict_versions)
        self._exchanges = HttpHandler(settings)
        aliases = TaskAliases(directory)
        json_rpc = JsonRpcBinding(operations, callers, aliases, is_strict=settings.strict_versions)
        rpc = self._rpc = Served(json_rpc, self._exchanges)
        self._files = FileBinding(directory, callers, patience_s=settings.patience_s)
        self._rest = RestBinding(operations, callers, is_strict=settings.strict_versions)
        pages = Starlette(
            routes=[
                Route("/healthz", health.health),
                Route("/readyz", health.readiness),
                *CardEndpoints(cards, callers, max_age_s=settings.card_max_age_s).routes(),
                # Calls don't come this far; these say which methods there are.
                Route("/", rpc, methods=["POST"]),
                Route("/agents/{agent}", rpc, methods=["POST"]),
                Route("/agents/{agent}/", rpc, methods=["POST"]),
            ],
            exception_handlers={404: _no_route, 405: _other_method},
        )
        pages.router.redirect_slashes = False
        self._pages = pages
        self.app: ASGIApp = TraceMiddleware(self._route)

    async def deliver_webhooks(self) -> None:
        """Deliver webhooks until cancelled."""
        await self._deliverer.run()

    @property
    def in_flight_count(self) -> int:
        """How many calls are being answered: streams, and calls that wait."""
        return len(self._exchanges) + len(self.grpc)

    def abort_requests(self) -> None:
        """End every answer that is under way, with an error that says how to go on."""
        self._exchanges.abort_all()

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Calls of agents go the short way: they are nearly all that is asked."""
        if scope["type"] == "http":
            if scope["method"] == "POST" and agent_in_path(scope["path"]) is not None:
                return self._rpc(scope, receive, send)
            if scope["path"].startswith(FILES_PATH):
                return self._exchanges.serve(self._files, scope, receive, send)
            place = self._rest.at(scope)
            if place is not None:
                return self._exchanges.serve(place, scope, receive, send)
        return self._pages(scope, receive, send)


async def _no_route(request: Request, _error: Exception) -> Response:
    # Not from the URL: that has the Host header in it, which may be anything.
    path = request.scope["path"][:_SHOWN_LENGTH]
    text = (
        f"nothing is served at {path}; agents are at /agents/NAME (JSON-RPC), and below it "
        f"(HTTP+JSON: /message:send, /tasks and so on, of A2A 0.3 /v1/message:send and so on); "
        f"their cards are below it at {CARD_PATH}"
    )
    return error_response(WireError(ROUTE_NOT_FOUND, text))


async def _other_method(request: Request, error: Exception) -> Response:
    headers = error.headers if isinstance(error, HTTPException) else None
    allowed = (headers or {}).get("Allow", "POST")
    text = f"{request.method[:_SHOWN_LENGTH]} is not served here; send {allowed}"
    if allowed == "POST":
        text += f" with a JSON-RPC request; the agent's card is at {CARD_PATH} below this path"
    return error_response(WireError(METHOD_NOT_ALLOWED, text), headers=headers)
