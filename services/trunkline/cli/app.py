"""The commands and their options; what each does is in a module that is loaded when it runs."""

import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from trunkline.cli.groups import data, docs, webhooks
from trunkline.cli.making import new
from trunkline.cli.options import (
    ACCOUNT,
    A2aGrpc,
    Account,
    Advertise,
    Agent,
    AgentSpecs,
    AllowWebhook,
    ApiKey,
    ApprovalId,
    Data,
    Default,
    Files,
    Http,
    Insecure,
    Json,
    Listen,
    McpFile,
    Mesh,
    Save,
    TaskId,
    Url,
    api_key,
)
from trunkline.cli.outcome import Exit, finish, run
from trunkline.cli.public import card, keys
from trunkline.cli.terminal import accept_any_text
from trunkline.cli.usage import QuestionCommand, parse_and_run
from trunkline.mesh.shipped import SHIPPED

# Rich help and tracebacks take half a second to load.
app = typer.Typer(
    name="trunkline",
    help="A mesh for AI agents.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
serve_app = typer.Typer(
    help="Serve one part of a mesh; they may start in any order.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(serve_app, name="serve")
app.add_typer(webhooks, name="webhooks")
app.add_typer(data, name="data")
app.add_typer(docs, name="docs")
app.add_typer(keys, name="keys")
app.add_typer(card, name="card")
app.add_typer(new, name="new")


def run_command() -> int:
    """Run the command that the arguments name; return its exit code."""
    accept_any_text()
    return parse_and_run(app)


@app.callback(invoke_without_command=True)
def _before_any_command(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib import metadata

        print(f"trunkline {metadata.version('trunkline')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(Exit.USAGE)


@app.command()
def up(
    *,
    http: Http = None,
    a2a_grpc: A2aGrpc = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve the mesh's gRPC here. [default: 127.0.0.1:50051]"
        ),
    ] = None,
    advertise: Advertise = None,
    data: Data = None,
    mcp: McpFile = None,
    agent: AgentSpecs = None,
    default: Default = None,
    allow_webhook: AllowWebhook = None,
    insecure: Insecure = False,
    attached: Annotated[bool, typer.Option("--attached", hidden=True)] = False,
    json: Json = False,
) -> None:
    """Bring a mesh up and keep it up. Port 0 picks one."""
    from trunkline.cli import up as command

    flags = {
        "http": http,
        "a2a_grpc": a2a_grpc,
        "mesh": mesh,
        "advertise": advertise,
        "data_dir": data,
        "mcp_file": mcp,
        "agents": agent or None,
        "default_agent": default,
        "allow_webhook": allow_webhook or None,
        "insecure": insecure or None,
    }
    _run_service(command.up(flags, is_attached=attached, as_json=json))


@serve_app.command("registry")
def serve_registry(
    mesh: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve here. [default: 127.0.0.1:50051]"),
    ] = None,
    *,
    data: Data = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Serve the mesh's address: who is on it, and everybody's traces."""
    from trunkline.cli import serve as command

    flags = {"mesh": mesh, "data_dir": data, "insecure": insecure or None}
    _run_service(command.serve_registry(flags, as_json=json))


@serve_app.command("bridge")
def serve_bridge(
    mesh: Mesh = None,
    *,
    http: Http = None,
    a2a_grpc: A2aGrpc = None,
    default: Default = None,
    allow_webhook: AllowWebhook = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Serve A2A over HTTP and gRPC."""
    from trunkline.cli import serve as command

    flags = {
        "mesh": mesh,
        "http": http,
        "a2a_grpc": a2a_grpc,
        "default_agent": default,
        "allow_webhook": allow_webhook or None,
        "insecure": insecure or None,
    }
    _run_service(command.serve_bridge(flags, as_json=json))


@serve_app.command("tools")
def serve_tools(
    mesh: Mesh = None,
    *,
    listen: Listen = None,
    advertise: Advertise = None,
    data: Data = None,
    mcp: McpFile = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Serve the tools of MCP servers."""
    from trunkline.cli import serve as command

    flags = {
        "mesh": mesh,
        "listen": listen,
        "advertise": advertise,
        "data_dir": data,
        "mcp_file": mcp,
        "insecure": insecure or None,
    }
    _run_service(command.serve_tools(flags, as_json=json))


@serve_app.command("agents")
def serve_agents(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"{', '.join(SHIPPED)}, or one of the MCP file's.",
            show_default=False,
        ),
    ] = None,
    mesh: Mesh = None,
    *,
    listen: Listen = None,
    advertise: Advertise = None,
    data: Data = None,
    mcp: McpFile = None,
    agent: AgentSpecs = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Serve agents, with a journal of their own."""
    from trunkline.cli import serve as command

    flags = {
        "mesh": mesh,
        "listen": listen,
        "advertise": advertise,
        "data_dir": data,
        "mcp_file": mcp,
        "agents": agent or None,
        "insecure": insecure or None,
    }
    _run_service(command.serve_agents(names or [], flags, as_json=json))


@app.command()
def join(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Of the agent, or of its card.", show_default=False)
    ],
    mesh: Mesh = None,
    *,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Call it this. [its card's name]", show_default=False),
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
        typer.Option(metavar="HOST", help="Let its card lead to this host, too; may be repeated."),
    ] = None,
    listen: Listen = None,
    advertise: Advertise = None,
    data: Data = None,
    insecure: Insecure = False,
    json: Json = False,
) -> None:
    """Put a remote A2A agent on a mesh, by its card."""
    from trunkline.cli import serve as command

    remote = command.Joining(
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
        "insecure": insecure or None,
    }
    _run_service(command.join(url, flags, remote, as_json=json))


@app.command(cls=QuestionCommand)
def ask(
    question: Annotated[str, typer.Argument(help="What to ask.", show_default=False)],
    *,
    agent: Agent = None,
    url: Url = None,
    key: ApiKey = None,
    task: Annotated[
        str, typer.Option(metavar="ID", help="Answer what this task asks.", show_default=False)
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="ID", help="Go on in this context.", show_default=False)
    ] = "",
    timeout: Annotated[
        float | None, typer.Option(metavar="S", min=0.001, help="End the task after S seconds.")
    ] = None,
    file: Files = None,
    save: Save = None,
    json: Json = False,
) -> None:
    """Ask the mesh and stream the answer. Exits 0 only if the task completed."""
    from trunkline.cli.talk import ask as command

    asked = command.Question(
        text=question,
        agent=agent,
        task_id=task,
        context_id=context,
        timeout_s=timeout,
        files=tuple(file or ()),
        save=save,
        api_key=api_key(key),
    )
    run(command.ask(asked, url=url, as_json=json))


@app.command()
def chat(agent: Agent = None, url: Url = None, *, key: ApiKey = None, json: Json = False) -> None:
    """Talk with the mesh, line by line. Ctrl-C cancels a turn, Ctrl-D leaves."""
    from trunkline.cli.talk import chat as command

    finish(lambda: command.chat(agent, url=url, api_key=api_key(key), as_json=json))


@app.command()
def demo(*, json: Json = False) -> None:
    """Run the main job on a mesh of its own: questions, answers, and the trace of one."""
    from trunkline.cli.talk import demo as command

    run(command.demo(as_json=json))


@app.command()
def agents(mesh: Mesh = None, *, json: Json = False) -> None:
    """List the agents on the mesh."""
    from trunkline.cli.inside import listing as command

    run(command.agents(mesh, as_json=json))


@app.command()
def tools(mesh: Mesh = None, *, json: Json = False) -> None:
    """List the tools of the mesh's MCP servers."""
    from trunkline.cli.inside import listing as command

    run(command.tools(mesh, as_json=json))


@app.command()
def tasks(
    mesh: Mesh = None,
    *,
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="Only of this agent.", show_default=False)
    ] = "",
    context: Annotated[
        str, typer.Option(metavar="ID", help="Only of this context.", show_default=False)
    ] = "",
    account: Account = ACCOUNT,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 20,
    json: Json = False,
) -> None:
    """List the latest tasks."""
    from trunkline.cli.inside import listing as command

    wanted = command.Wanted(account=account, agent=agent, context_id=context, limit=limit)
    run(command.tasks(mesh, wanted, as_json=json))


@app.command()
def task(
    task_id: TaskId, mesh: Mesh = None, *, account: Account = ACCOUNT, json: Json = False
) -> None:
    """Show a task: its state, its route, what it called and what it made."""
    from trunkline.cli.inside import task as command

    run(command.task(task_id, mesh, account=account, as_json=json))


@app.command()
def cancel(
    task_id: TaskId, mesh: Mesh = None, *, account: Account = ACCOUNT, json: Json = False
) -> None:
    """Cancel a task and all that it called."""
    from trunkline.cli.inside import task as command

    run(command.cancel(task_id, mesh, account=account, as_json=json))


@app.command()
def approvals(mesh: Mesh = None, *, account: Account = ACCOUNT, json: Json = False) -> None:
    """List the calls of tools that wait for somebody's approval."""
    from trunkline.cli.inside import approvals as command

    run(command.list_all(mesh, account=account, as_json=json))


@app.command()
def approve(
    approval_id: ApprovalId,
    mesh: Mesh = None,
    *,
    edit: Annotated[
        str,
        typer.Option(
            metavar="JSON", help="Have it called with these arguments.", show_default=False
        ),
    ] = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.", show_default=False)] = "",
    account: Account = ACCOUNT,
    json: Json = False,
) -> None:
    """Let a call be made that waits for approval."""
    from trunkline.cli.inside import approvals as command

    decided = command.approved(approval_id, account=account, reason=reason, edit=edit)
    run(command.decide(mesh, decided, as_json=json))


@app.command()
def reject(
    approval_id: ApprovalId,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why.", show_default=False)] = "",
    mesh: Mesh = None,
    *,
    account: Account = ACCOUNT,
    json: Json = False,
) -> None:
    """Don't let a call be made that waits for approval; its agent goes on without it."""
    from trunkline.cli.inside import approvals as command

    decided = command.rejected(approval_id, account=account, reason=reason)
    run(command.decide(mesh, decided, as_json=json))


@app.command()
def trace(
    trace_or_task_id: Annotated[
        str, typer.Argument(metavar="[ID]", help="Of a trace or a task.", show_default=False)
    ] = "",
    mesh: Mesh = None,
    *,
    json: Json = False,
) -> None:
    """Show a trace as a tree of spans; without an ID, list the latest traces."""
    from trunkline.cli.inside import trace as command

    if trace_or_task_id:
        run(command.trace(trace_or_task_id, mesh, as_json=json))
    else:
        run(command.traces(mesh, as_json=json))


def _run_service(work: Coroutine[Any, Any, int]) -> None:
    from trunkline.runtime import run

    finish(lambda: run(work))
