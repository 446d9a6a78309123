"""The probes `/healthz` and `/readyz`."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trunkline.a2a_wire.errors import WireError, to_wire_error
from trunkline.client import Directory
from trunkline.errors import TrunklineError
from trunkline_bridge.callers.caller import CallerFactory
from trunkline_bridge.http.messages import RequestHeaders, error_response

_NO_STORE = {"cache-control": "no-store"}


class HealthEndpoints:
    """The handlers of `/healthz` and `/readyz`."""

    def __init__(self, directory: Directory, callers: CallerFactory, default_agent: str) -> None:
        """Prepare the handlers; the bridge is ready if `default_agent` is."""
        self._directory = directory
        self._callers = callers
        self._default_agent = default_agent

    async def health(self, _request: Request) -> Response:
        """Respond that the process is alive."""
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)

    async def readiness(self, request: Request) -> Response:
        """Respond with 200 if the default agent is registered, else with 503.

        An authenticated caller also gets the problem, the state of each circuit breaker by host
        address and by agent name, and where messages between agents are stored.
        """
        parameters = RequestHeaders(request.scope)
        body: dict[str, object] = {"status": "ready"}
        detail: dict[str, object] = {}
        status = 200
        try:
            self._directory.get_agent(self._default_agent)
        except TrunklineError as error:
            body, status = {"status": "unavailable"}, 503
            detail["problem"] = to_wire_error(error).text
        # Probes have no credentials. They must not count as failed attempts to authenticate.
        if self._callers.has_credentials(parameters):
            try:
                identity = await self._callers.authenticate(parameters)
            except (WireError, TrunklineError) as error:
                return error_response(to_wire_error(error))
            if identity.is_authenticated:
                detail["breakers"] = self._directory.breaker_states()
                detail["agents"] = self._directory.agent_breaker_states()
                detail["messages"] = self._directory.messaging_mode() or "not served"
                body |= detail
        return JSONResponse(body, status_code=status, headers=_NO_STORE)
