"""Serves agent cards over HTTP, also to conditional requests (RFC 9110, 8.8 and 13.1)."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from trunkline.a2a_wire import json_values
from trunkline.a2a_wire.card_json import merged_card_json, v0_1_card_json, v0_3_card_json
from trunkline.a2a_wire.errors import WireError, to_wire_error
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import (
    CARD_PATH,
    KEYS_PATH,
    LEGACY_CARD_PATH,
    LEGACY_EXTENDED_PATH,
    V0_3,
    V1_0,
    VERSION_HEADER,
)
from trunkline.a2a_wire.v1_0.json_writer import agent_card_json
from trunkline.errors import TrunklineError
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.a2a.cards.agent_cards import AgentCards
from trunkline_bridge.callers.caller import CallerFactory, request_origin
from trunkline_bridge.callers.permissions import GET_EXTENDED_CARD
from trunkline_bridge.callers.version_header import find_version
from trunkline_bridge.http.messages import RequestHeaders, error_response
from trunkline_bridge.http.pages import Page
from trunkline_bridge.http.preconditions import is_not_modified

# More than the number of agents times the forms of a card.
_MAX_ENTRIES = 1024
# Cards for readers that refuse the members of other versions.
# Seconds that caches may store a card that has the same URL for all callers.
_MAX_AGE_S = 60
_RENDERERS = {V1_0: agent_card_json, V0_3: v0_3_card_json}


def card_etag(body: Json) -> str:
    """Return a weak ETag of a card, the same on all bridges of a mesh.

    It ignores the signatures, because some algorithms sign with randomness.
    """
    unsigned = {name: value for name, value in body.items() if name != "signatures"}
    digest = hashlib.sha256(json.dumps(unsigned, sort_keys=True).encode("utf-8")).hexdigest()
    return f'W/"{digest}"'


class ModificationTimes:
    """The times at which this bridge first saw the current ETag of each representation."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[str, datetime]] = OrderedDict()

    def last_modified(self, name: str, etag: str) -> datetime:
        """Return when the ETag of a representation last changed, in whole seconds."""
        previous, modified = self._seen.get(name, ("", datetime.min.replace(tzinfo=UTC)))
        if previous != etag:
            modified = datetime.now(UTC).replace(microsecond=0)
        self._seen[name] = (etag, modified)
        self._seen.move_to_end(name)
        while len(self._seen) > _MAX_ENTRIES:
            self._seen.popitem(last=False)
        return modified


class CardEndpoints:
    """Serves the public cards, the keys that verify them, and v0.2's path of the extended card."""

    def __init__(self, cards: AgentCards, callers: CallerFactory, *, is_strict: bool) -> None:
        """With `is_strict`, a request without a version is in v0.3 (A2A v1.0, §3.6)."""
        self._cards = cards
        self._callers = callers
        self._is_strict = is_strict
        self._modified = ModificationTimes()

    def routes(self) -> list[BaseRoute]:
        """Return the routes below an agent's address."""
        return [
            Route(CARD_PATH, Page(self._card)),
            Route(LEGACY_CARD_PATH, Page(self._legacy_card)),
            Route(LEGACY_EXTENDED_PATH, Page(self._extended_card)),
        ]

    def key_routes(self) -> list[BaseRoute]:
        """Return the route of the public keys, if cards are signed."""
        return [Route(KEYS_PATH, Page(self._keys))] if self._cards.public_keys else []

    async def _card(self, request: Request) -> Response:
        """Return the card with the members of the request's version, or of all versions."""
        return self._respond(request, _RENDERERS.get(self._version(request), merged_card_json))

    async def _legacy_card(self, request: Request) -> Response:
        is_v0_3 = self._version(request) == V0_3
        return self._respond(request, v0_3_card_json if is_v0_3 else v0_1_card_json)

    def _version(self, request: Request) -> str:
        named = find_version(RequestHeaders(request.scope), request.scope["query_string"])
        return named or (V0_3 if self._is_strict else "")

    def _respond(
        self, request: Request, render: Callable[[agent_card_pb2.AgentCard], Json]
    ) -> Response:
        agent = request.path_params.get("agent", "")
        base_url = self._cards.base_url(request_origin(RequestHeaders(request.scope)))
        try:
            body = render(self._cards.public_card(agent, base_url=base_url))
        except (TrunklineError, WireError) as error:
            return error_response(to_wire_error(error))
        etag = card_etag(body)
        name = f"{base_url} {request.scope['path']} {render.__name__}"
        modified = self._modified.last_modified(name, etag)
        headers = {
            "etag": etag,
            "last-modified": format_datetime(modified, usegmt=True),
            "cache-control": self._cache_control(),
            "vary": VERSION_HEADER,
        }
        if is_not_modified(
            request.headers.get("if-none-match"),
            request.headers.get("if-modified-since"),
            etag=etag,
            modified=modified,
        ):
            return Response(status_code=304, headers=headers)
        return Response(json_values.dumps(body), headers=headers, media_type="application/json")

    def _cache_control(self) -> str:
        if self._cards.has_fixed_url:
            return f"public, max-age={_MAX_AGE_S}"
        # The card has the host of the request, which a cache may ignore. A2A recommends a max-age.
        return "private, no-cache, max-age=0"

    async def _keys(self, _request: Request) -> Response:
        headers = {"cache-control": f"public, max-age={_MAX_AGE_S}"}
        return JSONResponse(self._cards.public_keys, headers=headers)

    async def _extended_card(self, request: Request) -> Response:
        headers = RequestHeaders(request.scope)
        try:
            identity = await self._callers.authenticate(headers)
            caller = self._callers.build_caller(
                identity,
                headers,
                agent=request.path_params.get("agent", ""),
                version=V0_3,
            )
            caller.permissions.check(caller.agent, GET_EXTENDED_CARD)
            body = v0_1_card_json(self._cards.extended_card(caller))
        except (TrunklineError, WireError) as error:
            return error_response(to_wire_error(error))
        return Response(
            json_values.dumps(body),
            headers={"cache-control": "private, no-store"},
            media_type="application/json",
        )
