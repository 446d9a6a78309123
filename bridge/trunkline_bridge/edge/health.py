"""Serves the liveness and readiness probes of orchestrators such as Kubernetes."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from trunkline.client import Directory
from trunkline.errors import TrunklineError
from trunkline_bridge.errors import to_wire_error


class HealthEndpoints:
    """The handlers of `/healthz` and `/readyz`."""

    def __init__(self, directory: Directory, default_agent: str) -> None:
        """`default_agent` decides whether the bridge is ready."""
        self._directory = directory
        self._default_agent = default_agent

    async def health(self, _request: Request) -> Response:
        """Respond that the process is alive."""
        return JSONResponse({"status": "ok"}, headers={"cache-control": "no-store"})

    async def readiness(self, _request: Request) -> Response:
        """Respond whether requests would reach the default agent: 200, or 503 with the problem.

        The body also has the states of the circuit breakers, by the address of each host that was
        called and by the names of its agents.
        """
        body: dict[str, object]
        try:
            self._directory.get_agent(self._default_agent)
        except TrunklineError as error:
            body, status = {"status": "not ready", "problem": to_wire_error(error).text}, 503
        else:
            body, status = {"status": "ready"}, 200
        body["breakers"] = self._directory.breaker_states()
        body["agents"] = self._directory.agent_breaker_states()
        return JSONResponse(body, status_code=status, headers={"cache-control": "no-store"})
