"""`/metrics` of the bridge, for Prometheus."""

from starlette.requests import Request
from starlette.responses import Response

from trunkline.a2a_wire.errors import WireError, to_wire_error
from trunkline.errors import TrunklineError
from trunkline.metrics.prometheus import PrometheusMetrics
from trunkline_bridge.callers.caller import CallerFactory
from trunkline_bridge.callers.permissions import GET_METRICS
from trunkline_bridge.http.messages import RequestHeaders, error_response

# Metrics are of all agents.
_ALL_AGENTS = "*"


class MetricsPage:
    """The metrics of this process.

    If callers are authenticated, a scraper needs an API key as its bearer token, with the
    permission for the method GetMetrics at all agents.
    """

    def __init__(
        self, metrics: PrometheusMetrics, callers: CallerFactory, *, is_public: bool
    ) -> None:
        """With `is_public`, all callers may read the metrics."""
        self._metrics = metrics
        self._callers = callers
        self._is_public = is_public

    async def respond(self, request: Request) -> Response:
        """Respond with the metrics, in the format that the scraper prefers."""
        if not self._is_public:
            try:
                identity = await self._callers.authenticate(RequestHeaders(request.scope))
                identity.permissions.check(_ALL_AGENTS, GET_METRICS)
            except (WireError, TrunklineError) as error:
                return error_response(to_wire_error(error))
        text = await self._metrics.scrape(request.headers.get("accept", ""))
        headers = {"content-type": text.content_type, "cache-control": "no-store"}
        return Response(text.body, headers=headers)
