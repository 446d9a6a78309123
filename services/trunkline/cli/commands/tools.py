"""The commands for the tools of a mesh's MCP servers: list, show, call, login."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.cli.exits import finish, run
from trunkline.cli.options import AccountOption, JsonOption, MeshOption

tools = typer.Typer(
    help="List the tools of the mesh's MCP servers, show one, call one, or sign in to a server.",
    invoke_without_command=True,
)

ToolArgument = Annotated[
    str,
    typer.Argument(
        metavar="SERVER/TOOL", help="As `trunkline tools list` shows it.", show_default=False
    ),
]


@tools.callback()
def _tools_callback(
    context: typer.Context, mesh: MeshOption = None, *, json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        tools_list(mesh, json=json)


@tools.command("list")
def tools_list(mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """List the tools, and the servers that are not ready."""
    from trunkline.cli import inspect as command

    run(command.list_tools(mesh, as_json=json))


@tools.command("show")
def tools_show(tool: ToolArgument, mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """Show a tool: its description, its arguments and their schema."""
    from trunkline.cli import tools as command

    run(command.show_tool(tool, mesh, as_json=json))


@tools.command("call")
def tools_call(
    tool: ToolArgument,
    arguments: Annotated[
        str,
        typer.Argument(
            metavar="JSON", help="The arguments as a JSON object; - reads it from stdin."
        ),
    ] = "",
    mesh: MeshOption = None,
    *,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="One argument; may be repeated.", show_default=False
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve the call without a question.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="Cancel it then.", show_default=False),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Save the result's files there.", show_default=False),
    ] = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> None:
    """Call a tool and print its result. It asks first if the tool needs approval."""
    from trunkline.cli import tools as command

    call = command.ToolCommand(
        tool,
        arguments,
        tuple(arg or ()),
        account=account,
        timeout_s=timeout,
        is_approved=yes,
        save=save,
    )
    finish(lambda: command.call_tool(call, mesh, as_json=json))


@tools.command("login")
def tools_login(
    server: Annotated[
        str,
        typer.Argument(metavar="SERVER", help="A server with OAuth.", show_default=False),
    ],
    mesh: MeshOption = None,
    *,
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Port of the redirect on 127.0.0.1, if the authorization server knows only one.",
        ),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Sign in to an MCP server by OAuth. The mesh stores and refreshes the tokens."""
    from trunkline.cli import tool_sign_in as command

    run(command.log_in(server, mesh, port=port, opens_browser=browser))
