"""Puts the bridge's HTTP side together."""

from collections.abc import Awaitable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trunkline.client import Directory
from trunkline.client.web.addresses import AddressGuard
from trunkline_bridge.errors import WireError
from trunkline_bridge.health import Health
from trunkline_bridge.inbound.access import open_access
from trunkline_bridge.inbound.caller import Access, Callers, agent_at
from trunkline_bridge.inbound.cards import CARD_PATH
from trunkline_bridge.inbound.cards.endpoints import Endpoints
from trunkline_bridge.inbound.cards.making import Cards, open_signer
from trunkline_bridge.inbound.cards.pages import CardPages
from trunkline_bridge.inbound.exchange import Exchanges, Served
from trunkline_bridge.inbound.files.binding import FILES_PATH, Files
from trunkline_bridge.inbound.grpc.body import Bounds
from trunkline_bridge.inbound.grpc.calls import Calls
from trunkline_bridge.inbound.http import NO_ROUTE, OTHER_METHOD, plain_failure
from trunkline_bridge.inbound.jsonrpc.binding import JsonRpc
from trunkline_bridge.inbound.jsonrpc.dialects.aliases import Aliases
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.rest.binding import Rest
from trunkline_bridge.inbound.tracing import TraceMiddleware
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.webhooks.delivery import Deliverer
from trunkline_bridge.webhooks.posting import Poster
from trunkline_bridge.webhooks.registration import Registrations
from trunkline_bridge.webhooks.signatures import Signer

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
        access: Access | None = None,
    ) -> None:
        settings = settings or BridgeSettings()
        access = access or open_access(settings)
        self.endpoints = Endpoints()
        cards = Cards(directory, settings, access, self.endpoints, open_signer(settings))
        health = Health(directory, settings.default_agent)
        callers = Callers(access, settings)
        guard = AddressGuard(settings.allow_webhook)
        operations = Operations(directory, settings, cards, Registrations(directory, guard))
        signer = Signer(settings.webhook_secret) if settings.webhook_secret else None
        self._deliverer = Deliverer(
            directory,
            Poster(guard, signer),
            lambda: cards.links(""),
            lease_s=settings.lease_s,
        )
        bounds = Bounds(settings.body_limit_bytes, settings.request_timeout_s)
        self.grpc = Calls(operations, callers, bounds, is_strict=settings.strict_versions)
        self._exchanges = Exchanges(settings)
        aliases = Aliases(directory)
        json_rpc = JsonRpc(operations, callers, aliases, is_strict=settings.strict_versions)
        rpc = self._rpc = Served(json_rpc, self._exchanges)
        self._files = Files(directory, callers, patience_s=settings.patience_s)
        self._rest = Rest(operations, callers, is_strict=settings.strict_versions)
        pages = Starlette(
            routes=[
                Route("/healthz", health.health),
                Route("/readyz", health.readiness),
                *CardPages(cards, callers, max_age_s=settings.card_max_age_s).routes(),
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

    async def deliver(self) -> None:
        """Deliver webhooks until cancelled."""
        await self._deliverer.run()

    @property
    def open_answers(self) -> int:
        """How many calls are being answered: streams, and calls that wait."""
        return len(self._exchanges) + len(self.grpc)

    def cut(self) -> None:
        """End every answer that is under way, with an error that says how to go on."""
        self._exchanges.cut()

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Calls of agents go the short way: they are nearly all that is asked."""
        if scope["type"] == "http":
            if scope["method"] == "POST" and agent_at(scope["path"]) is not None:
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
    return plain_failure(WireError(NO_ROUTE, text))


async def _other_method(request: Request, error: Exception) -> Response:
    headers = error.headers if isinstance(error, HTTPException) else None
    allowed = (headers or {}).get("Allow", "POST")
    text = f"{request.method[:_SHOWN_LENGTH]} is not served here; send {allowed}"
    if allowed == "POST":
        text += f" with a JSON-RPC request; the agent's card is at {CARD_PATH} below this path"
    return plain_failure(WireError(OTHER_METHOD, text), headers=headers)
