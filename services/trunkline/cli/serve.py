"""`trunkline up`, `serve` and `join`: run a mesh or one service of it until a signal."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from trunkline import runtime
from trunkline.cli.terminal import print_json, say
from trunkline.errors import ConfigurationError
from trunkline.logs import configure_logging
from trunkline.runtime import ServiceStatus
from trunkline.settings import Settings, load_settings, parse_remote

Service: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[ServiceStatus]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteOptions:
    """The options of a remote agent."""

    name: str
    headers: Sequence[str]
    """Lines of the form `NAME: VALUE`."""
    token_env: str
    api_key_env: str
    api_key_header: str
    hosts: Sequence[str]

    def to_table(self) -> dict[str, object]:
        """Convert to a `[remote.NAME]` table. Raises ConfigurationError for an invalid header."""
        headers: dict[str, str] = {}
        for line in self.headers:
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise ConfigurationError("--header", "write it as `NAME: VALUE`")
            headers[name.strip()] = value.strip()
        return {
            "headers": headers,
            "token_env": self.token_env,
            "api_key_env": self.api_key_env,
            "api_key_header": self.api_key_header,
            "hosts": list(self.hosts),
        }


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
    """Serve the agents named by arguments and flags."""
    from trunkline.mesh.agents import serve_agents as service

    return await _serve_one(partial(service, names=names), flags, as_json=as_json)


async def join(
    url: str, flags: Mapping[str, object], remote: RemoteOptions, *, as_json: bool
) -> int:
    """Put the remote A2A agent at a URL on a mesh."""
    from trunkline.mesh.remotes import serve_remote as service

    given = parse_remote({"url": url, **remote.to_table()}, where="join")
    return await _serve_one(
        partial(service, remote=given, name=remote.name), flags, as_json=as_json
    )


async def serve(
    opening: AbstractAsyncContextManager[ServiceStatus],
    settings: Settings,
    *,
    as_json: bool,
    lifeline: int | None = None,
) -> int:
    """Serve until a signal; print a line for each served address. Return the exit code."""

    def tell(state: str, served: Mapping[str, str]) -> None:
        if as_json:
            print_json(served if state == "ready" else {**served, "state": state})
        else:
            print(runtime.format_state(state, served), end="", flush=True)

    return await runtime.serve(
        opening,
        on_state=tell,
        on_waiting=lambda: say(runtime.format_waiting(settings.mesh)),
        parent_pipe=lifeline,
    )


async def _serve_one(service: Service, flags: Mapping[str, object], *, as_json: bool) -> int:
    settings = load_settings(flags)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    return await serve(service(settings), settings, as_json=as_json)


async def up(flags: Mapping[str, object], *, is_attached: bool, as_json: bool) -> int:
    """Start a mesh, print its addresses, and drain it on SIGTERM or Ctrl-C.

    A second signal ends the process at once. An attached mesh also stops when stdin ends, so that
    it ends with the process that started it, even if that is killed.

    Raises:
        ConfigurationError: a setting is wrong, or an address can't be used.
    """
    # A process of one service needs none of the others.
    from trunkline.mesh.all_in_one import open_mesh

    settings = load_settings(flags)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    lifeline = sys.stdin.fileno() if is_attached else None
    return await serve(open_mesh(settings), settings, as_json=as_json, lifeline=lifeline)
