"""The commands for the tools of a mesh's MCP servers: list, show, call, login."""

import asyncio
import json
import sys
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import parse_qsl, urlsplit

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode, print_error, run
from trunkline.cli.options import AccountOption, JsonOption, MeshOption, argument, flag, option
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.json_values import build_struct, message_to_dict, struct_json
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    SignInFailedError,
    ToolNotFoundError,
    ToolServerUnavailableError,
)
from trunkline.v1 import tool_service_pb2

if TYPE_CHECKING:
    from trunkline.mesh.client import Directory

group = typer.Typer(invoke_without_command=True)

_NEAR_NAMES: Final = 3
# Of `difflib`, at most 1.
_SIMILAR: Final = 0.75

# The wait for MCP servers that are starting.
_START_TIMEOUT_S = 10.0

ToolArgument = Annotated[str, argument("SERVER/TOOL", "As `trunkline tools list` shows it.")]


@group.callback()
def _tools_callback(
    context: typer.Context, mesh: MeshOption = None, *, json: JsonOption = False
) -> None:
    if context.invoked_subcommand is None:
        run(list_tools(mesh, json=json))


@command(group, "list")
async def list_tools(mesh: MeshOption = None, *, json: JsonOption = False) -> None:
    """List the tools, and the servers that are not ready."""
    from trunkline.cli.directory import open_directory

    async with open_directory(mesh) as directory:
        listing = await directory.tool_client().wait_for_tools(timeout_s=_START_TIMEOUT_S)
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


@command(group, "show")
async def show_tool(
    tool: ToolArgument, mesh: MeshOption = None, *, json: JsonOption = False
) -> None:
    """Show a tool: its description, its arguments and their schema."""
    found = await fetch_tool(tool, mesh)
    if json:
        print_json(message_to_dict(found, with_proto_names=True))
    else:
        print("\n".join(describe_tool(found)))


@command(group, "call")
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
    from trunkline.cli import tool_call as by_hand

    # The question is asked outside the event loop, so that Ctrl-C and line editing work.
    with asyncio.Runner() as runner:
        try:
            given = by_hand.parse_text(sys.stdin.read() if arguments == "-" else arguments)
            found = runner.run(fetch_tool(tool, mesh))
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


@command(group, "login")
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
    from trunkline.cli.directory import open_directory
    from trunkline.cli.tool_sign_in import SIGN_IN_S, receive_redirect

    async with (
        open_directory(mesh) as directory,
        receive_redirect(port) as (redirect_uri, redirect),
    ):
        client = directory.tool_client()
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


def server_state(server: tool_service_pb2.ToolServer) -> str:
    """Return the state of a server, or the state of its circuit breaker unless that is closed."""
    from trunkline.mesh.client.mesh_words import tool_server_state

    if server.breaker not in ("", "closed"):
        return server.breaker
    return tool_server_state(server)


async def fetch_tool(name: str, mesh: str | None) -> tool_service_pb2.Tool:
    """Return a tool of a mesh; raises as `_find_tool`."""
    from trunkline.cli.directory import open_directory

    async with open_directory(mesh) as directory:
        return await _find_tool(directory, name)


async def _find_tool(directory: "Directory", name: str) -> tool_service_pb2.Tool:
    """Return a tool. Waits for its server if that is starting, and for no other.

    Raises:
        ToolNotFoundError: there is no such tool. Notes say why, or name similar tools.
        ToolServerUnavailableError: its server is down.
    """
    from trunkline.mesh.client.services import TOOL_SERVERS_TIMEOUT_S

    server, _, tool_name = name.partition("/")
    client = directory.tool_client()
    listing = await client.wait_for_tools((server,), timeout_s=TOOL_SERVERS_TIMEOUT_S)
    for tool in listing.tools:
        if (tool.server, tool.name) == (server, tool_name):
            return tool
    states = {state.name: state for state in listing.servers}
    if server in states and server_state(states[server]) != "ready":
        problem = states[server].error or "it is still starting"
        raise ToolServerUnavailableError(server, problem)
    error = ToolNotFoundError(server, tool_name)
    for problem in states[server].listing_problems if server in states else ():
        if problem.startswith(f"{tool_name}: "):
            error.add_note(problem.removeprefix(f"{tool_name}: "))
    tools = [*listing.tools, *(await client.list_known_tools()).tools]
    near = _find_near(name, [f"{tool.server}/{tool.name}" for tool in tools])
    if near:
        error.add_note(f"did you mean {' or '.join(near)}?")
    raise error


def _find_near(name: str, labels: Sequence[str]) -> list[str]:
    """Return the tools with a similar name, or with a similar name on another server."""
    by_name = {label.partition("/")[2].casefold(): label for label in reversed(labels)}
    by_label = {label.casefold(): label for label in labels}
    last = name.rpartition("/")[2].casefold()
    near = [by_name[match] for match in get_close_matches(last, by_name, cutoff=_SIMILAR)]
    near += [
        by_label[match] for match in get_close_matches(name.casefold(), by_label, cutoff=_SIMILAR)
    ]
    return list(dict.fromkeys(near))[:_NEAR_NAMES]


def describe_tool(tool: tool_service_pb2.Tool) -> Iterator[str]:
    """Yield the lines that describe a tool: a label in ten columns, then its value."""
    from trunkline.agents.calls.schema_arguments import describe_type

    yield f"tool      {tool.server}/{tool.name}"
    if tool.title and tool.title != tool.name:
        yield f"title     {tool.title}"
    if tool.description:
        yield f"does      {' '.join(tool.description.split())}"
    traits = [
        trait
        for trait, holds in (
            ("reads only", tool.read_only),
            ("may destroy something", tool.destructive),
            ("may be repeated", tool.idempotent),
            ("needs approval", tool.needs_approval),
        )
        if holds
    ]
    if traits:
        yield f"traits    {', '.join(traits)}"
    schema = struct_json(tool.input_schema)
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        kind = describe_type(about, schema)
        text = f"{name}: {kind}" + (", required" if name in required else "")
        note = about.get("description", "") if isinstance(about, Mapping) else ""
        yield "argument  " + ". ".join(filter(None, (text, " ".join(str(note).split()))))
    yield "schema"
    yield json.dumps(schema, indent=2, ensure_ascii=False)
