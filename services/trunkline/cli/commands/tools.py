"""The commands for the tools of a mesh's MCP servers: list, show, call, login."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode, print_error, run
from trunkline.cli.options import AccountOption, JsonOption, MeshOption, argument, flag, option
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.errors import InvalidArgumentError, PeerTimeoutError, SignInFailedError

tools = typer.Typer(
    help="List the tools of the mesh's MCP servers, show one, call one, or sign in to a server.",
    invoke_without_command=True,
)

# The wait for MCP servers that are starting.
_START_TIMEOUT_S = 10.0

ToolArgument = Annotated[str, argument("SERVER/TOOL", "As `trunkline tools list` shows it.")]


@tools.callback()
def _tools_callback(
    context: typer.Context, mesh: MeshOption = None, *, json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        run(list_tools(mesh, json=json))


@command(tools, "list")
async def list_tools(mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """List the tools, and the servers that are not ready."""
    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.tools import server_state
    from trunkline.core.json_values import message_to_dict

    async with open_mesh_view(mesh) as view:
        listing = await view.tool_client().wait_for_tools(timeout_s=_START_TIMEOUT_S)
    if json:
        print_json(message_to_dict(listing, with_proto_names=True))
        return
    rows = [
        (
            f"{tool.server}/{tool.name}",
            "ready",
            "asks" if tool.needs_approval else "",
            tool.description,
        )
        for tool in listing.tools
    ]
    rows += [
        (server.name, server_state(server), "", server.error)
        for server in listing.servers
        if server_state(server) != "ready"
    ]
    rows += [
        (server.name, "incomplete", "", problem)
        for server in listing.servers
        for problem in server.listing_problems
    ]
    empty = "no tools; `trunkline up --mcp FILE` adds MCP servers"
    print_table(("TOOL", "STATE", "APPROVAL", "DESCRIPTION"), rows, empty=empty)


@command(tools, "show")
async def show_tool(
    tool: ToolArgument, mesh: MeshOption = None, *, json: JsonOption = False
) -> None:
    """Show a tool: its description, its arguments and their schema."""
    from trunkline.cli.tools import describe_tool, fetch_tool
    from trunkline.core.json_values import message_to_dict

    found = await fetch_tool(tool, mesh)
    if json:
        print_json(message_to_dict(found, with_proto_names=True))
    else:
        print("\n".join(describe_tool(found)))


@command(tools, "call")
def call_tool(
    tool: ToolArgument,
    arguments: Annotated[
        str, argument("JSON", "The arguments as a JSON object; - reads it from stdin.")
    ] = "",
    mesh: MeshOption = None,
    *,
    arg: Annotated[list[str] | None, option("NAME=VALUE", "One argument; may be repeated.")] = None,
    yes: Annotated[bool, flag("Approve the call without a question.", "--yes")] = False,
    timeout: Annotated[float | None, option("SECONDS", "Cancel it then.", min=0.001)] = None,
    save: Annotated[Path | None, option("DIR", "Save the result's files there.")] = None,
    account: AccountOption = ANONYMOUS_ACCOUNT,
    json: JsonOption = False,
) -> ExitCode:
    """Call a tool and print its result. It asks first if the tool needs approval."""
    import asyncio

    from trunkline.cli import tools as by_hand
    from trunkline.core.json_values import build_struct
    from trunkline.v1 import tool_service_pb2

    # The question is asked outside the event loop, so that Ctrl-C and line editing work.
    with asyncio.Runner() as runner:
        try:
            given = by_hand.parse_text(sys.stdin.read() if arguments == "-" else arguments)
            found = runner.run(by_hand.fetch_tool(tool, mesh))
            values = given | by_hand.parse_pairs(arg or (), found)
            by_hand.check_arguments(found, values)
            request = tool_service_pb2.CallToolRequest(
                server=found.server,
                tool=found.name,
                account=account,
                arguments=build_struct(values),
            )
        except InvalidArgumentError as error:
            print_error(error)
            return ExitCode.USAGE
        if found.needs_approval:
            if not yes and (refusal := by_hand.ask_for_approval(found, request)):
                return refusal
            by_hand.approve_call(request, values)
        label = f"{found.server}/{found.name}"
        try:
            while True:
                result = runner.run(by_hand.call_tool(request, mesh, timeout_s=timeout))
                if not result.HasField("question"):
                    break
                continuation = by_hand.ask_question(label, result.question)
                if continuation is None:
                    handle = result.question.task_handle
                    runner.run(by_hand.cancel_call(request, handle, mesh))
                    return ExitCode.INPUT_REQUIRED
                request.continuation.CopyFrom(continuation)
        except PeerTimeoutError:
            if timeout is None:
                raise
            # The mesh answers. The call has ended as the user said.
            print_stderr(f"error: {label} took longer than {timeout:g} s")
            return ExitCode.FAILED
    by_hand.print_result(result, as_json=json)
    if save is not None:
        by_hand.save_files(result, save)
    return ExitCode.FAILED if result.is_error else ExitCode.OK


@command(tools, "login")
async def log_in(
    server: Annotated[str, argument("SERVER", "A server with OAuth.")],
    mesh: MeshOption = None,
    *,
    port: Annotated[
        int,
        option(
            "PORT",
            "Port of the redirect on 127.0.0.1, if the authorization server knows only one.",
            min=0,
            max=65535,
            show_default=True,
        ),
    ] = 0,
    browser: Annotated[bool, flag("Open the page in a browser.", "--browser/--no-browser")] = True,
) -> None:
    """Sign in to an MCP server by OAuth. The mesh stores and refreshes the tokens."""
    import asyncio
    import webbrowser
    from urllib.parse import parse_qsl, urlsplit

    from trunkline.cli.mesh_view import open_mesh_view
    from trunkline.cli.tool_sign_in import SIGN_IN_S, receive_redirect

    async with (
        open_mesh_view(mesh) as view,
        receive_redirect(port) as (redirect_uri, redirect),
    ):
        client = view.tool_client()
        url = await client.start_sign_in(server, redirect_uri)
        redirect.state = dict(parse_qsl(urlsplit(url).query)).get("state", "")
        print_stderr("Open this page to sign in:")
        print(url, flush=True)
        if browser:
            await asyncio.to_thread(webbrowser.open, url)
        try:
            async with asyncio.timeout(SIGN_IN_S):
                parameters = await redirect.answer
        except TimeoutError:
            problem = "nobody has signed in within ten minutes"
            raise SignInFailedError(server, problem) from None
        await client.complete_sign_in(server, parameters)
    print_stderr(f"signed in to {server}")
