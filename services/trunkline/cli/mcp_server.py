"""`trunkline serve mcp`: offers the agents of a mesh to MCP clients."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from trunkline import runtime
from trunkline.cli.options import resolve_mesh_settings
from trunkline.cli.serve import print_state, print_waiting
from trunkline.errors import ConfigurationError
from trunkline.logs import configure_logging
from trunkline.settings import HostPort, Settings

_STATE_KEY: Final = "TRUNKLINE_MCP_STATE_KEY"
_SHORTEST_KEY_BYTES: Final = 32
_USED: Final = frozenset({"log_format", "log_level", "patience_s"})


async def serve_mcp(
    *,
    url: str,
    mesh: str | None,
    names: Sequence[str],
    api_key: str,
    http: str | None,
    insecure: bool,
    as_json: bool,
) -> int:
    """Serve over stdio until stdin ends, or over HTTP until a signal."""
    settings = replace(resolve_mesh_settings(mesh, uses=_USED), insecure=insecure)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    if http is None:
        return await _serve_stdio(settings, url=url, names=names, api_key=api_key)
    from trunkline.mesh.mcp_server import serve_agents_over_http

    try:
        address = HostPort.parse(http)
    except ValueError as error:
        raise ConfigurationError("--http", str(error)) from None
    state_key = os.environ.get(_STATE_KEY, "")
    if state_key and len(state_key.encode()) < _SHORTEST_KEY_BYTES:
        raise ConfigurationError(_STATE_KEY, f"has less than {_SHORTEST_KEY_BYTES} bytes")
    return await runtime.serve(
        serve_agents_over_http(
            settings, address, url=url, names=names, api_key=api_key, state_key=state_key
        ),
        on_state=partial(print_state, as_json=as_json),
        on_waiting=lambda: print_waiting(settings),
    )


async def _serve_stdio(settings: Settings, *, url: str, names: Sequence[str], api_key: str) -> int:
    from trunkline.mesh.mcp_server import open_agent_server

    # stdout is the protocol's alone.
    async with open_agent_server(
        settings, url=url, names=names, api_key=api_key, lends_key=True
    ) as server:
        await server.serve_stdio()
    return 0
