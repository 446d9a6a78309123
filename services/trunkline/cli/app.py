"""The command line: its commands, in the order in which help lists them.

Each command is a function in `commands/`. It imports what it works with when it runs, so that
`--help` stays fast.
"""

import sys
from typing import Annotated

import typer

from trunkline.cli.commands import (
    approvals,
    ask,
    audit,
    completion,
    config,
    identity,
    inspect,
    logs,
    mesh,
    messages,
    project,
    serve,
    storage,
    tasks,
    tools,
    webhooks,
    workflow_runs,
)
from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import flag
from trunkline.cli.plugins import PluginGroup
from trunkline.cli.terminal import accept_any_text
from trunkline.cli.usage import QuestionCommand, parse_and_run

# Rich help and tracebacks are off because Rich takes half a second to load.
app = typer.Typer(
    name="trunkline",
    cls=PluginGroup,
    help="A mesh for AI agents.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
command(app, serves=True)(serve.up)
command(app, serves=True)(serve.join)
command(app, cls=QuestionCommand)(ask.ask)
for _command in (
    ask.chat,
    ask.demo,
    ask.a2a,
    inspect.agents,
    tasks.tasks,
    tasks.task,
    tasks.watch,
    tasks.events,
    tasks.cancel,
    tasks.top,
    approvals.approvals,
    approvals.approve,
    approvals.reject,
    inspect.trace,
    logs.logs,
    audit.audit,
    storage.usage,
):
    command(app)(_command)
app.add_typer(serve.serve, name="serve")
app.add_typer(tools.tools, name="tools")
app.add_typer(messages.messages, name="messages")
app.add_typer(messages.rooms, name="rooms")
app.add_typer(webhooks.webhooks, name="webhooks")
app.add_typer(storage.data, name="data")
app.add_typer(mesh.mesh, name="mesh")
app.add_typer(identity.keys, name="keys")
app.add_typer(identity.card, name="card")
app.add_typer(workflow_runs.workflow, name="workflow")
app.add_typer(config.config, name="config")
app.add_typer(completion.completion, name="completion")
app.add_typer(project.new, name="new")
command(app)(project.trust)


def run_command() -> int:
    """Run the command of the process arguments; return its exit code."""
    accept_any_text()
    if sys.argv[1:2] == ["a2a"]:
        # The order of its flags matters, which typer does not keep.
        from trunkline.cli.a2a_cli.program import main

        return main(sys.argv[2:])
    return parse_and_run(app)


@app.callback(invoke_without_command=True)
def _main_callback(
    context: typer.Context,
    *,
    version: Annotated[bool, flag("Print the version.", "--version")] = False,
) -> None:
    if version:
        from importlib import metadata

        print(f"trunkline {metadata.version('trunkline')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(ExitCode.USAGE)
