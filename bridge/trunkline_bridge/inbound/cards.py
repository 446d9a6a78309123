"""Serves the agents' public cards, and says whether the bridge is alive and ready."""

import hashlib
import json
import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trunkline.client import Directory
from trunkline.errors import TrunklineError
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.errors import INVALID_REQUEST, WireError, wire_error
from trunkline_bridge.inbound.http import plain_failure
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.wire import json_values, v1_json

PROTOCOL_VERSION = "1.0"
RESUME_EXTENSION = "https://trunkline.dev/a2a/extensions/resume/v1"

_RESUME_DESCRIPTION = (
    "Events of streams carry ids; SubscribeToTask with a Last-Event-ID header goes on behind that "
    "event, also when the task has ended. A request that activates the extension is submitted at "
    "most once per message id."
)
_HOST = re.compile(r"[A-Za-z0-9._\-\[\]:]{1,255}")


class Cards:
    """Cards as the registry has them now, with the addresses this bridge has for them."""

    def __init__(self, directory: Directory, settings: BridgeSettings) -> None:
        self._directory = directory
        self._settings = settings

    async def default_card(self, request: Request) -> Response:
        """Serve the default agent's card, with the root as its address."""
        return self._respond(request, self._settings.default_agent, "/")

    async def agent_card(self, request: Request) -> Response:
        """Serve an agent's card."""
        name = request.path_params["agent"]
        return self._respond(request, name, f"/agents/{name}")

    async def health(self, _request: Request) -> Response:
        """Say that the process is alive."""
        return JSONResponse({"status": "ok"}, headers={"cache-control": "no-store"})

    async def readiness(self, _request: Request) -> Response:
        """Say whether requests would reach the default agent, and how far hosts are trusted."""
        body: dict[str, object]
        try:
            self._directory.agent(self._settings.default_agent)
        except TrunklineError as error:
            body, status = {"status": "not ready", "problem": str(error)}, 503
        else:
            body, status = {"status": "ready"}, 200
        body["breakers"] = self._directory.breakers()
        return JSONResponse(body, status_code=status, headers={"cache-control": "no-store"})

    def _respond(self, request: Request, agent: str, path: str) -> Response:
        try:
            card = self._directory.agent(agent).card
            url = self._base_url(request) + path
        except (TrunklineError, WireError) as error:
            return plain_failure(wire_error(error))
        body = v1_json.agent_card(public_card(card, url=url))
        etag = _etag(body)
        headers = {
            "etag": etag,
            "cache-control": f"public, max-age={self._settings.card_max_age_s}",
        }
        if _matches(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        return Response(json_values.dumps(body), headers=headers, media_type="application/json")

    def _base_url(self, request: Request) -> str:
        if self._settings.public_url:
            return self._settings.public_url.rstrip("/")
        host = request.headers.get("host", "")
        if _HOST.fullmatch(host) is None:
            raise WireError(INVALID_REQUEST, "the Host header is missing or not a host's name")
        return f"{request.scope['scheme']}://{host}"


def public_card(card: agent_card_pb2.AgentCard, *, url: str) -> agent_card_pb2.AgentCard:
    """Return a card of the mesh with the interfaces and capabilities that the bridge gives it."""
    public = agent_card_pb2.AgentCard()
    public.CopyFrom(card)
    del public.supported_interfaces[:]
    public.supported_interfaces.add(
        url=url, protocol_binding="JSONRPC", protocol_version=PROTOCOL_VERSION
    )
    public.capabilities.Clear()
    public.capabilities.streaming = True
    public.capabilities.push_notifications = False
    public.capabilities.extended_agent_card = False
    public.capabilities.extensions.add(uri=RESUME_EXTENSION, description=_RESUME_DESCRIPTION)
    return public


def _etag(body: json_values.Json) -> str:
    # Weak, and without signatures: those are randomised, and the card is the same under each.
    signed = {name: value for name, value in body.items() if name != "signatures"}
    digest = hashlib.sha256(json.dumps(signed, sort_keys=True).encode("utf-8")).hexdigest()
    return f'W/"{digest}"'


def _matches(given: str, etag: str) -> bool:
    """Compare weakly, as If-None-Match does (RFC 9110, 13.1.2)."""
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags
