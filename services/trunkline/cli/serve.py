"""Serves a mesh, or one service of it, until a signal."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final, TypeAlias

from trunkline.cli.log_file import LogFileHandler, log_path
from trunkline.cli.options import load_command_settings, resolve_mesh_settings
from trunkline.cli.terminal import DIM, paint, print_json, print_stderr
from trunkline.core import runtime
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import Settings, TlsSettings, load_settings
from trunkline.errors import ConfigurationError
from trunkline.observe.logs import JsonFormatter, configure_logging, make_event, render_event

_USED_BY_MCP: Final = frozenset({"log_format", "log_level", "patience_s"})
USED_BY_JOIN: Final = frozenset({"advertise", "data_dir", "listen", "mesh"})
"""The settings that `join` uses."""
_STATE_KEY: Final = "TRUNKLINE_MCP_STATE_KEY"
_SHORTEST_KEY_BYTES: Final = 32

Service: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[ServiceStatus]]


def parse_headers(lines: Sequence[str]) -> dict[str, str]:
    """Return headers by their names. ConfigurationError: one is not of the form `NAME: VALUE`."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigurationError("--header", "write it as `NAME: VALUE`")
        headers[name.strip()] = value.strip()
    return headers


def load_mcp_settings(mesh: str | None, *, insecure: bool) -> Settings:
    """Load the settings of a server that offers the agents of a mesh to MCP clients."""
    return replace(resolve_mesh_settings(mesh, uses=_USED_BY_MCP), insecure=insecure)


def read_state_key() -> str:
    """Return the key that seals the state of MCP sessions. ConfigurationError: it is too short."""
    state_key = os.environ.get(_STATE_KEY, "")
    if state_key and len(state_key.encode()) < _SHORTEST_KEY_BYTES:
        raise ConfigurationError(_STATE_KEY, f"has less than {_SHORTEST_KEY_BYTES} bytes")
    return state_key


def load_attached(flags: Mapping[str, object]) -> Settings:
    """Load the settings of a mesh that serves another command on this machine.

    From a folder that is not trusted, only harmless settings apply.
    """
    settings = load_command_settings(flags, uses=None)
    # A folder that is not trusted may have tables of agents that it does not load.
    joining = (*settings.joining, *settings.agent_options)
    # The other command is on this machine, and the certificate has other names.
    return replace(settings, tls=TlsSettings(), joining=joining)


async def serve_until_signal(
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

    The first signal drains the service, and a second one ends the process at once.

    With `reports`, also print to stderr what is loaded. With `logs_as`, also log to the file of the
    data directory, by this name.

    Raises:
        ConfigurationError: a setting is wrong, or an address can't be used.
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
    """Print the addresses of what is ready."""
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
    from trunkline.core.settings.effective import DEFAULT, list_effective_settings

    sources = dict.fromkeys(setting.source for setting in list_effective_settings(flags))
    sources.pop(DEFAULT, None)
    return ", ".join(sources) or "defaults"
