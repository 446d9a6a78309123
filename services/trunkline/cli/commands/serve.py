"""The commands that serve a mesh, one service of it or a remote agent until they are stopped."""

import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import (
    A2aGrpcOption,
    AdvertiseOption,
    AgentSpecsOption,
    AllowWebhookOption,
    ApiKeyOption,
    DataOption,
    DefaultOption,
    HttpOption,
    InsecureOption,
    JsonOption,
    ListenOption,
    McpFileOption,
    MeshOption,
    UrlOption,
    WorkflowFilesOption,
    resolve_api_key,
    resolve_base_url,
)
from trunkline.cli.plugins import AgentNamesCommand

serve = typer.Typer(
    help="Serve one service of a mesh. They may start in any order.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def up(
    *,
    http: HttpOption = None,
    a2a_grpc: A2aGrpcOption = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve the mesh's gRPC here. [default: 127.0.0.1:50051]"
        ),
    ] = None,
    advertise: AdvertiseOption = None,
    data: DataOption = None,
    mcp: McpFileOption = None,
    agent: AgentSpecsOption = None,
    workflow: WorkflowFilesOption = None,
    default: DefaultOption = None,
    allow_webhook: AllowWebhookOption = None,
    insecure: InsecureOption = False,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Start again when files of agents or settings change."),
    ] = False,
    attached: Annotated[bool, typer.Option("--attached", hidden=True)] = False,
    json: JsonOption = False,
) -> None:
    """Start a mesh and serve until stopped. Port 0 picks a free port."""
    flags = {
        "http": http,
        "a2a_grpc": a2a_grpc,
        "mesh": mesh,
        "advertise": advertise,
        "data_dir": data,
        "mcp_file": mcp,
        "agents": agent or None,
        "workflows": workflow or None,
        "default_agent": default,
        "allow_webhook": allow_webhook or None,
        "insecure": insecure or None,
    }
    if reload:
        from trunkline.cli.reload import up_reloading

        _run_service(up_reloading(flags, sys.argv[1:]))
    from trunkline.cli import serve as command

    _run_service(command.up(flags, is_attached=attached, as_json=json))


@serve.command("registry")
def serve_registry(
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh",
            "--listen",
            metavar="HOST:PORT",
            help="Serve here. [default: 127.0.0.1:50051]",
        ),
    ] = None,
    *,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Serve the mesh's address: the registry and the traces."""
    from trunkline.cli import serve as command

    flags = {"mesh": mesh, "data_dir": data}
    _run_service(command.serve_registry(flags, as_json=json))


@serve.command("bridge")
def serve_bridge(
    mesh: MeshOption = None,
    *,
    http: HttpOption = None,
    a2a_grpc: A2aGrpcOption = None,
    data: DataOption = None,
    default: DefaultOption = None,
    allow_webhook: AllowWebhookOption = None,
    insecure: InsecureOption = False,
    json: JsonOption = False,
) -> None:
    """Serve A2A over HTTP and gRPC."""
    from trunkline.cli import serve as command

    flags = {
        "mesh": mesh,
        "http": http,
        "a2a_grpc": a2a_grpc,
        "data_dir": data,
        "default_agent": default,
        "allow_webhook": allow_webhook or None,
        "insecure": insecure or None,
    }
    _run_service(command.serve_bridge(flags, as_json=json))


@serve.command("mcp")
def serve_mcp(
    url: UrlOption = None,
    key: ApiKeyOption = None,
    *,
    mesh: MeshOption = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Offer this agent; may be repeated. [default: all agents of the mesh]",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve here, at /mcp. [default: stdio]"),
    ] = None,
    insecure: InsecureOption = False,
    json: JsonOption = False,
) -> None:
    """Offer the agents of a running mesh as tools to MCP clients."""
    from trunkline.cli import mcp_server as command

    _run_service(
        command.serve_mcp(
            url=resolve_base_url(url),
            mesh=mesh,
            names=agent or (),
            api_key=resolve_api_key(key),
            http=http,
            insecure=bool(insecure),
            as_json=json,
        )
    )


@serve.command("tools")
def serve_tools(
    mesh: MeshOption = None,
    *,
    listen: ListenOption = None,
    advertise: AdvertiseOption = None,
    data: DataOption = None,
    mcp: McpFileOption = None,
    json: JsonOption = False,
) -> None:
    """Serve the tools of MCP servers."""
    from trunkline.cli import serve as command

    flags = {
        "mesh": mesh,
        "listen": listen,
        "advertise": advertise,
        "data_dir": data,
        "mcp_file": mcp,
    }
    _run_service(command.serve_tools(flags, as_json=json))


@serve.command("messages")
def serve_messages(
    mesh: MeshOption = None,
    *,
    listen: ListenOption = None,
    advertise: AdvertiseOption = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Serve messages between agents."""
    from trunkline.cli import serve as command

    flags = {"mesh": mesh, "listen": listen, "advertise": advertise, "data_dir": data}
    _run_service(command.serve_messages(flags, as_json=json))


@serve.command("agents", cls=AgentNamesCommand)
def serve_agents(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="{agents}, or one of the MCP file's.",
            show_default=False,
        ),
    ] = None,
    mesh: MeshOption = None,
    *,
    listen: ListenOption = None,
    advertise: AdvertiseOption = None,
    data: DataOption = None,
    mcp: McpFileOption = None,
    agent: AgentSpecsOption = None,
    workflow: WorkflowFilesOption = None,
    json: JsonOption = False,
) -> None:
    """Serve agents, with their own journal."""
    from trunkline.cli import serve as command

    flags = {
        "mesh": mesh,
        "listen": listen,
        "advertise": advertise,
        "data_dir": data,
        "mcp_file": mcp,
        "agents": agent or None,
        "workflows": workflow or None,
    }
    _run_service(command.serve_agents(names or [], flags, as_json=json))


def join(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="The URL of the agent or of its card.", show_default=False
        ),
    ],
    mesh: MeshOption = None,
    *,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Its name on the mesh. [its card's name]", show_default=False
        ),
    ] = "",
    token_env: Annotated[
        str,
        typer.Option(
            metavar="VARIABLE", help="Send the token that this variable holds.", show_default=False
        ),
    ] = "",
    api_key_env: Annotated[
        str,
        typer.Option(
            metavar="VARIABLE", help="Send the key that this variable holds.", show_default=False
        ),
    ] = "",
    api_key_header: Annotated[
        str, typer.Option(metavar="HEADER", help="The header for the key.")
    ] = "X-API-Key",
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="Send this header; may be repeated."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Also allow this host in its card; may be repeated."),
    ] = None,
    listen: ListenOption = None,
    advertise: AdvertiseOption = None,
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Add a remote A2A agent to a mesh, by its card."""
    from trunkline.cli import serve as command

    remote = command.RemoteOptions(
        name=name,
        headers=header or (),
        token_env=token_env,
        api_key_env=api_key_env,
        api_key_header=api_key_header,
        hosts=host or (),
    )
    flags = {
        "mesh": mesh,
        "listen": listen,
        "advertise": advertise,
        "data_dir": data,
    }
    _run_service(command.join(url, flags, remote, as_json=json))


def _run_service(work: Coroutine[Any, Any, int]) -> None:
    from trunkline.runtime import run

    finish(lambda: run(work))
