"""The commands that serve a mesh, one service of it or a remote agent until they are stopped."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.options import (
    ApiKeyOption,
    DataOption,
    JsonOption,
    MeshOption,
    UrlOption,
    argument,
    flag,
    load_command_settings,
    option,
    resolve_api_key,
    resolve_base_url,
)
from trunkline.cli.plugins import AgentNamesCommand
from trunkline.cli.terminal import print_stderr
from trunkline.errors import ConfigurationError

AdvertiseOption = Annotated[
    str | None, option("HOST[:PORT]", "Its address for others. [default: where it serves]")
]
McpFileOption = Annotated[
    Path | None, option("FILE", "MCP servers, in the mcpServers form.", "--mcp")
]
InsecureOption = Annotated[
    bool, flag("Serve other machines, without authentication.", "--insecure")
]

serve = typer.Typer(
    help="Serve one service of a mesh. They may start in any order.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, kw_only=True)
class _Flags:
    """Options whose names are names of settings."""

    def read_flags(self) -> dict[str, object]:
        """Return the settings that the options give. An option that is not given gives None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value or None for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class HostFlags(_Flags):
    """The options of a process that serves others on the mesh."""

    mesh: MeshOption = None
    listen: Annotated[
        str | None, option("HOST:PORT", "Serve gRPC here. [default: any port of 127.0.0.1]")
    ] = None
    advertise: AdvertiseOption = None
    data_dir: DataOption = None


@dataclass(frozen=True, kw_only=True)
class BridgeFlags(_Flags):
    """The options of a bridge."""

    http: Annotated[
        str | None, option("HOST:PORT", "Serve A2A over HTTP here. [default: 127.0.0.1:8000]")
    ] = None
    a2a_grpc: Annotated[
        str | None, option("HOST:PORT", "Serve A2A over gRPC here. [default: 127.0.0.1:50052]")
    ] = None
    data_dir: DataOption = None
    default_agent: Annotated[
        str | None,
        option("NAME", "The agent that answers at /. [default: supervisor]", "--default"),
    ] = None
    allow_webhook: Annotated[
        list[str] | None,
        option(
            "HOST[:PORT]",
            "Allow webhooks to this host, even if private or without https; may be repeated.",
        ),
    ] = None
    insecure: InsecureOption = False


@dataclass(frozen=True, kw_only=True)
class AgentFlags(_Flags):
    """The options of a process that runs agents."""

    mcp_file: McpFileOption = None
    agents: Annotated[
        list[str] | None,
        option("MODULE:NAME", "Also run this agent; may be repeated.", "--agent"),
    ] = None
    workflows: Annotated[
        list[str] | None,
        option(
            "FILE|NAME",
            "Also run this workflow, those in a folder, or an installed one; may be repeated.",
            "--workflow",
        ),
    ] = None


async def up(
    bridge: BridgeFlags,
    agents: AgentFlags,
    *,
    mesh: Annotated[
        str | None, option("HOST:PORT", "Serve the mesh's gRPC here. [default: 127.0.0.1:50051]")
    ] = None,
    advertise: AdvertiseOption = None,
    reload: Annotated[
        bool, flag("Start again when files of agents or settings change.", "--reload")
    ] = False,
    attached: Annotated[bool, typer.Option("--attached", hidden=True)] = False,
    json: JsonOption = False,
) -> int:
    """Start a mesh and serve until stopped. Port 0 picks a free port."""
    flags = {
        **bridge.read_flags(),
        **agents.read_flags(),
        "mesh": mesh,
        "advertise": advertise,
    }
    if reload:
        from trunkline.cli.reload import up_reloading

        return await up_reloading(flags, sys.argv[1:])
    from trunkline.cli.serve import load_attached, serve_until_signal
    from trunkline.processes.all_in_one import open_mesh

    if not attached:
        return await serve_until_signal(
            open_mesh, flags, as_json=json, reports=not json, logs_as="mesh"
        )
    # It serves another command, and also stops when stdin ends: with the process that started it,
    # even if that is killed.
    return await serve_until_signal(
        open_mesh, flags, as_json=json, load=load_attached, parent_pipe=sys.stdin.fileno()
    )


@command(serve, "registry", serves=True)
async def serve_registry(
    mesh: Annotated[
        str | None,
        option("HOST:PORT[,…]", "The mesh's address. [default: 127.0.0.1:50051]", "--mesh"),
    ] = None,
    *,
    listen: Annotated[
        str | None,
        option("HOST:PORT", "Serve here. [default: the first address of the mesh]", "--listen"),
    ] = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> int:
    """Serve a registry of the mesh, and the traces. All registries of a mesh are alike."""
    from functools import partial

    from trunkline.cli.serve import serve_until_signal
    from trunkline.core.settings import HostPort
    from trunkline.processes.registry import serve_registry

    try:
        own = None if listen is None else HostPort.parse(listen)
    except ValueError as error:
        raise ConfigurationError("--listen", str(error)) from error
    flags = {"mesh": mesh, "data_dir": data}
    service = partial(serve_registry, listen=own)
    return await serve_until_signal(service, flags, as_json=json, logs_as="registry")


@command(serve, "bridge", serves=True)
async def serve_bridge(
    bridge: BridgeFlags, *, mesh: MeshOption = None, json: JsonOption = False
) -> int:
    """Serve A2A over HTTP and gRPC."""
    from trunkline.cli.serve import serve_until_signal
    from trunkline.processes.bridge import serve_bridge

    flags = {**bridge.read_flags(), "mesh": mesh}
    return await serve_until_signal(serve_bridge, flags, as_json=json)


@command(serve, "mcp", serves=True)
async def serve_mcp(
    url: UrlOption = None,
    key: ApiKeyOption = None,
    *,
    mesh: MeshOption = None,
    agent: Annotated[
        list[str] | None,
        option("NAME", "Offer this agent; may be repeated. [default: all agents of the mesh]"),
    ] = None,
    http: Annotated[
        str | None, option("HOST:PORT", "Serve here, at /mcp. [default: stdio]")
    ] = None,
    insecure: InsecureOption = False,
    json: JsonOption = False,
) -> int:
    """Offer the agents of a running mesh as tools to MCP clients."""
    from functools import partial

    from trunkline.cli.serve import load_mcp_settings, print_state, print_waiting, read_state_key
    from trunkline.core import runtime
    from trunkline.core.settings import HostPort
    from trunkline.observe.logs import configure_logging
    from trunkline.processes.mcp_server import open_agent_server, serve_agents_over_http

    base = resolve_base_url(url)
    api_key = resolve_api_key(key)
    settings = load_mcp_settings(mesh, insecure=insecure)
    configure_logging(level=settings.log_level, log_format=settings.log_format)
    if http is None:
        # stdout is the protocol's alone.
        async with open_agent_server(
            settings, url=base, names=agent or (), api_key=api_key, lends_key=True
        ) as server:
            await server.serve_stdio()
        return 0
    try:
        address = HostPort.parse(http)
    except ValueError as error:
        raise ConfigurationError("--http", str(error)) from None
    return await runtime.serve(
        serve_agents_over_http(
            settings,
            address,
            url=base,
            names=agent or (),
            api_key=api_key,
            state_key=read_state_key(),
        ),
        on_state=partial(print_state, as_json=json),
        on_waiting=lambda: print_waiting(settings),
    )


@command(serve, "tools", serves=True)
async def serve_tools(
    host: HostFlags, *, mcp: McpFileOption = None, json: JsonOption = False
) -> int:
    """Serve the tools of MCP servers."""
    from trunkline.cli.serve import serve_until_signal
    from trunkline.processes.tools import serve_tools

    flags = {**host.read_flags(), "mcp_file": mcp}
    return await serve_until_signal(serve_tools, flags, as_json=json, logs_as="tools")


@command(serve, "messages", serves=True)
async def serve_messages(host: HostFlags, *, json: JsonOption = False) -> int:
    """Serve messages between agents."""
    from trunkline.cli.serve import serve_until_signal
    from trunkline.processes.messaging import serve_messages

    flags = host.read_flags()
    return await serve_until_signal(serve_messages, flags, as_json=json, logs_as="messages")


@command(serve, "agents", serves=True, cls=AgentNamesCommand)
async def serve_agents(
    host: HostFlags,
    agents: AgentFlags,
    names: Annotated[
        list[str] | None, argument("NAME", "{agents}, or one of the MCP file's.")
    ] = None,
    *,
    json: JsonOption = False,
) -> int:
    """Serve agents, with their own journal."""
    from functools import partial

    from trunkline.cli.serve import serve_until_signal
    from trunkline.processes.agents import serve_agents

    flags = {**host.read_flags(), **agents.read_flags()}
    service = partial(serve_agents, names=names or [])
    return await serve_until_signal(service, flags, as_json=json, logs_as="agents")


async def join(
    url: Annotated[str, argument("URL", "The URL of the agent or of its card.")],
    host: HostFlags,
    *,
    name: Annotated[str, option("NAME", "Its name on the mesh. [its card's name]")] = "",
    token_env: Annotated[str, option("VARIABLE", "Send the token that this variable holds.")] = "",
    api_key_env: Annotated[str, option("VARIABLE", "Send the key that this variable holds.")] = "",
    api_key_header: Annotated[
        str, option("HEADER", "The header for the key.", show_default=True)
    ] = "X-API-Key",
    header: Annotated[
        list[str] | None, option("'NAME: VALUE'", "Send this header; may be repeated.")
    ] = None,
    hosts: Annotated[
        list[str] | None,
        option("HOST", "Also allow this host in its card; may be repeated.", "--host"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Add a remote A2A agent to a mesh, by its card."""
    from functools import partial

    from trunkline.cli.serve import USED_BY_JOIN, parse_headers, serve_until_signal
    from trunkline.core.settings import parse_remote
    from trunkline.processes.joined_agent import serve_remote

    remote = {
        "url": url,
        "headers": parse_headers(header or ()),
        "token_env": token_env,
        "api_key_env": api_key_env,
        "api_key_header": api_key_header,
        "hosts": hosts or [],
    }
    service = partial(
        serve_remote,
        remote=parse_remote(remote, where="join"),
        name=name,
        on_waiting=lambda error: print_stderr(f"waiting: {error}"),
    )
    return await serve_until_signal(
        service,
        host.read_flags(),
        as_json=json,
        load=partial(load_command_settings, uses=USED_BY_JOIN),
    )
