"""`trunkline up`, `serve` and `join`: runs a mesh or one service of it until a signal."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from trunkline import runtime
from trunkline.cli.log_file import LogFileHandler, log_path
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import DIM, paint, print_json, print_stderr
from trunkline.errors import ConfigurationError
from trunkline.logs import JsonFormatter, configure_logging, make_event, render_event
from trunkline.runtime import ServiceStatus
from trunkline.settings import Settings, TlsSettings, load_settings, parse_remote

_USED_BY_JOIN: Final = frozenset({"advertise", "data_dir", "listen", "mesh"})

Service: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[ServiceStatus]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteOptions:
    """The options of `join` for a remote agent. An empty text is an option that is not set."""

    name: str
    headers: Sequence[str]
    """Lines of the form `NAME: VALUE`."""
    token_env: str
    api_key_env: str
    api_key_header: str
    hosts: Sequence[str]

    def to_table(self) -> dict[str, object]:
        """Convert to a `[remote.NAME]` table of the settings file.

        Raises:
            ConfigurationError: a header is not of the form `NAME: VALUE`.
        """
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

    return await _serve(service, flags, as_json=as_json, logs_as="registry")


async def serve_bridge(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve A2A over HTTP and gRPC."""
    from trunkline.mesh.bridge import serve_bridge as service

    return await _serve(service, flags, as_json=as_json)


async def serve_tools(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve the tools of MCP servers."""
    from trunkline.mesh.tools import serve_tools as service

    return await _serve(service, flags, as_json=as_json, logs_as="tools")


async def serve_messages(flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve messages between agents."""
    from trunkline.mesh.messaging import serve_messages as service

    return await _serve(service, flags, as_json=as_json, logs_as="messages")


async def serve_agents(names: Sequence[str], flags: Mapping[str, object], *, as_json: bool) -> int:
    """Serve the agents named by arguments and flags."""
    from trunkline.mesh.agents import serve_agents as service

    return await _serve(partial(service, names=names), flags, as_json=as_json, logs_as="agents")


async def join(
    url: str, flags: Mapping[str, object], remote: RemoteOptions, *, as_json: bool
) -> int:
    """Register the remote A2A agent at a URL on a mesh, once it can be reached."""
    from trunkline.mesh.remotes import serve_remote as service

    settings = parse_remote({"url": url, **remote.to_table()}, where="join")
    return await _serve(
        partial(
            service,
            remote=settings,
            name=remote.name,
            on_waiting=lambda error: print_stderr(f"waiting: {error}"),
        ),
        flags,
        as_json=as_json,
        load=partial(load_command_settings, uses=_USED_BY_JOIN),
    )


async def up(flags: Mapping[str, object], *, is_attached: bool, as_json: bool) -> int:
    """Start a mesh, print its addresses, and drain it on SIGTERM or Ctrl-C.

    A second signal ends the process at once. An attached mesh serves another command. It takes only
    harmless settings from a folder that is not trusted, and also stops when stdin ends, so that it
    ends with the process that started it, even if that is killed.

    Raises:
        ConfigurationError: a setting is wrong, or an address can't be used.
    """
    # Imported here, because the other commands need only a part of it.
    from trunkline.mesh.all_in_one import open_mesh

    if not is_attached:
        return await _serve(open_mesh, flags, as_json=as_json, reports=not as_json, logs_as="mesh")
    return await _serve(
        open_mesh,
        flags,
        as_json=as_json,
        load=_load_attached,
        parent_pipe=sys.stdin.fileno(),
    )


def _load_attached(flags: Mapping[str, object]) -> Settings:
    settings = load_command_settings(flags, uses=None)
    # A folder that is not trusted may have tables of agents that it does not load.
    joining = (*settings.joining, *settings.agent_options)
    # The other command is on this machine, and the certificate has other names.
    return replace(settings, tls=TlsSettings(), joining=joining)


async def _serve(
    service: Service,
    flags: Mapping[str, object],
    *,
    as_json: bool,
    load: Callable[[Mapping[str, object]], Settings] = load_settings,
    reports: bool = False,
    logs_as: str = "",
    parent_pipe: int | None = None,
) -> int:
    """Serve until a signal, or until `parent_pipe` ends. Print the addresses; return the code.

    With `reports`, also print to stderr what is loaded. With `logs_as`, also log to the file of the
    data directory, by this name.
    """
    settings = load(flags)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    log_file = LogFileHandler(log_path(settings), service=logs_as) if logs_as else None
    if log_file is not None:
        logging.getLogger().addHandler(log_file)

    def report_state(state: str, addresses: Mapping[str, str]) -> None:
        if log_file is not None:
            log_file.note(f"process.{state}", **addresses)
        print_state(state, addresses, as_json=as_json)

    async def report_inventory(status: ServiceStatus) -> None:
        sources = await runtime.load_in_thread(_name_sources, flags)
        print_inventory({**status.inventory, "settings": sources}, settings)

    return await runtime.serve(
        service(settings),
        on_state=report_state,
        on_ready=report_inventory if reports else None,
        on_waiting=lambda: print_waiting(settings),
        parent_pipe=parent_pipe,
    )


def print_state(state: str, addresses: Mapping[str, str], *, as_json: bool) -> None:
    """Print the addresses of what is ready, or on standby."""
    if as_json:
        print_json(addresses if state == "ready" else {**addresses, "state": state})
    else:
        print(runtime.format_state(state, addresses), end="", flush=True)


def print_inventory(rows: Mapping[str, str], settings: Settings) -> None:
    """Print to stderr what is loaded, in the format of the log."""
    if settings.log_format == "json":
        events = (make_event("process.loaded", kind=kind, text=rows[kind]) for kind in rows)
        print_stderr("\n".join(map(JsonFormatter().format, events)))
    else:
        lines = (f"{kind:<10} {text}" for kind, text in rows.items())
        print_stderr(paint("\n".join(lines), DIM, sys.stderr))


def print_waiting(settings: Settings) -> None:
    """Print to stderr that there is no mesh to join yet, in the format of the log."""
    text = runtime.format_waiting(settings.mesh)
    print_stderr(
        render_event("process.waiting", text, log_format=settings.log_format, mesh=settings.mesh)
    )


def _name_sources(flags: Mapping[str, object]) -> str:
    """Return the files, variables and flags that settings come from."""
    from trunkline.settings.effective import DEFAULT, list_effective_settings

    sources = dict.fromkeys(setting.source for setting in list_effective_settings(flags))
    sources.pop(DEFAULT, None)
    return ", ".join(sources) or "defaults"
