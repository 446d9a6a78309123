"""Serves cards over plain HTTP, with the validators that let clients keep them."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trunkline.errors import TrunklineError
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.errors import WireError, wire_error
from trunkline_bridge.inbound.caller import Callers, origin_of
from trunkline_bridge.inbound.cards import (
    CARD_PATH,
    LEGACY_CARD_PATH,
    LEGACY_EXTENDED_PATH,
)
from trunkline_bridge.inbound.cards.making import Cards
from trunkline_bridge.inbound.cards.names import KEYS_PATH
from trunkline_bridge.inbound.cards.validators import Ages, etag_of, http_date, is_unchanged
from trunkline_bridge.inbound.http import Headers, plain_failure
from trunkline_bridge.wire import json_values
from trunkline_bridge.wire.card_json import merged_card, original_card
from trunkline_bridge.wire.json_values import Json
from trunkline_bridge.wire.versions import V0_3


class CardPages:
    """Cards by GET: those that everybody may read, and v0.2's way to the extended one."""

    def __init__(self, cards: Cards, callers: Callers, *, max_age_s: int) -> None:
        self._cards = cards
        self._callers = callers
        self._max_age_s = max_age_s
        self._ages = Ages()

    def routes(self) -> list[Route]:
        """Return where they are: below each agent's URL; the keys that sign them once for all."""
        keys = [Route(KEYS_PATH, self._keys)] if self._cards.public_keys else []
        return keys + [
            Route(base + path, page)
            for base in ("", "/agents/{agent}")
            for path, page in (
                (CARD_PATH, self._card),
                (LEGACY_CARD_PATH, self._original_card),
                (LEGACY_EXTENDED_PATH, self._extended_card),
            )
        ]

    async def _card(self, request: Request) -> Response:
        return self._public(request, merged_card)

    async def _original_card(self, request: Request) -> Response:
        return self._public(request, original_card)

    def _public(
        self, request: Request, form: Callable[[agent_card_pb2.AgentCard], Json]
    ) -> Response:
        agent = request.path_params.get("agent", "")
        origin = origin_of(Headers(request.scope))
        try:
            body = form(self._cards.public(agent, origin=origin))
        except (TrunklineError, WireError) as error:
            return plain_failure(wire_error(error))
        etag = etag_of(body)
        modified = self._ages.since(f"{origin} {request.scope['path']}", etag)
        headers = {
            "etag": etag,
            "last-modified": http_date(modified),
            "cache-control": f"public, max-age={self._max_age_s}",
        }
        if is_unchanged(request.headers, etag=etag, modified=modified):
            return Response(status_code=304, headers=headers)
        return Response(json_values.dumps(body), headers=headers, media_type="application/json")

    async def _keys(self, _request: Request) -> Response:
        headers = {"cache-control": f"public, max-age={self._max_age_s}"}
        return JSONResponse(self._cards.public_keys, headers=headers)

    async def _extended_card(self, request: Request) -> Response:
        headers = Headers(request.scope)
        try:
            identity = await self._callers.identify(headers)
            caller = self._callers.caller(
                identity,
                headers,
                agent=request.path_params.get("agent", ""),
                version=V0_3,
            )
            body = original_card(self._cards.extended(caller))
        except (TrunklineError, WireError) as error:
            return plain_failure(wire_error(error))
        return Response(
            json_values.dumps(body),
            headers={"cache-control": "private, no-store"},
            media_type="application/json",
        )
