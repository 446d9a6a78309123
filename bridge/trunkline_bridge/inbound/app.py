"""Puts the bridge's HTTP side together."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from trunkline.client import Directory
from trunkline_bridge.inbound.cards import Cards
from trunkline_bridge.inbound.jsonrpc import JsonRpc
from trunkline_bridge.inbound.operations import Operations
from trunkline_bridge.inbound.tracing import TraceMiddleware
from trunkline_bridge.settings import BridgeSettings


class Bridge:
    """The public side of a mesh: every agent on the registry speaks A2A here.

    It keeps nothing between requests, and looks agents up anew for each: one that registers is
    public at once. `app` is an ASGI application; whoever serves it also keeps `directory` open.
    """

    def __init__(self, directory: Directory, settings: BridgeSettings | None = None) -> None:
        settings = settings or BridgeSettings()
        cards = Cards(directory, settings)
        rpc = JsonRpc(directory, Operations(directory, settings), settings)
        card_path = "/.well-known/agent-card.json"
        self.app = Starlette(
            routes=[
                Route("/healthz", cards.health),
                Route("/readyz", cards.readiness),
                Route(card_path, cards.default_card),
                Route("/agents/{agent}" + card_path, cards.agent_card),
                Route("/", rpc, methods=["POST"]),
                Route("/agents/{agent}", rpc, methods=["POST"]),
                Route("/agents/{agent}/", rpc, methods=["POST"]),
            ],
            middleware=[Middleware(TraceMiddleware)],
        )
        self.app.router.redirect_slashes = False
