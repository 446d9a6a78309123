"""`trunkline serve`: one service of a mesh in this process, until it is told to stop."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeAlias

from trunkline import runtime
from trunkline.cli.terminal import print_json, say
from trunkline.logs import configure_logging
from trunkline.runtime import Serving
from trunkline.settings import Settings, load_settings

Service: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[Serving]]


async def serve_registry(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve the registry and the span store at the mesh's address."""
    from trunkline.mesh.registry import serve_registry as service

    return await _serve_one(service, flags, as_json=as_json)


async def serve_bridge(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve A2A over HTTP and gRPC."""
    from trunkline.mesh.bridge import serve_bridge as service

    return await _serve_one(service, flags, as_json=as_json)


async def serve_tools(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve the tools of MCP servers."""
    from trunkline.mesh.tools import serve_tools as service

    return await _serve_one(service, flags, as_json=as_json)


async def serve_agents(names: Sequence[str], flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve agents: those of these names, and those that flags name."""
    from trunkline.mesh.agents import serve_agents as service

    return await _serve_one(partial(service, names=names), flags, as_json=as_json)


async def serve(
    opening: AbstractAsyncContextManager[Serving],
    settings: Settings,
    *,
    as_json: bool,
    lifeline: int | None = None,
) -> int:
    """Serve until told to stop; print a line for each thing that serves. Return the exit code."""

    def tell(state: str, served: Mapping[str, str]) -> None:
        if as_json:
            print_json(served if state == "ready" else {**served, "state": state})
        else:
            print(runtime.state_line(state, served), flush=True)

    return await runtime.serve(
        opening,
        tell=tell,
        tell_waiting=lambda: say(runtime.waiting_line(settings.mesh)),
        lifeline=lifeline,
    )


async def _serve_one(service: Service, flags: Mapping[str, object], *, as_json: bool) -> int:
    settings = load_settings(flags)
    configure_logging(level=settings.log_level, form=settings.log_format)
    return await serve(service(settings), settings, as_json=as_json)
