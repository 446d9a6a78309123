"""The command line: its commands, in the order in which help lists them.

Each command is a function in `commands/`. The module of a group is imported when a command of the
group runs. A command outside of a group imports what it works with when it runs. So `--help` stays
fast.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from trunkline.cli.commands import (
    approvals,
    ask,
    audit,
    inspect,
    logs,
    serve,
    tasks,
    trust,
    usage,
)
from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import flag
from trunkline.cli.plugins import LazyGroup, PluginGroup
from trunkline.cli.terminal import accept_any_text
from trunkline.cli.usage import QuestionCommand, parse_and_run

GROUPS: Final[Mapping[str, str]] = {
    "tools": (
        "List the tools of the mesh's MCP servers, show one, call one, or sign in to a server."
    ),
    "messages": "Send messages between agents, list, follow and repeat them.",
    "rooms": "List rooms, join or leave them. `messages follow --room` shows messages.",
    "webhooks": "Show the delivery of webhooks, and repeat what failed.",
    "data": "Check, back up, restore, prune and rekey the data directory.",
    "mesh": "Let other users and machines join a mesh.",
    "keys": "Manage the API keys of callers.",
    "card": "Verify agent cards. `trunkline a2a card get` shows one.",
    "workflow": "Validate, draw, run and pause workflows, and choose their versions.",
    "config": "Show the effective settings, check files, print schemas for editors.",
    "completion": "Print the script that completes words in bash, zsh or fish.",
    "new": "Create a project to begin with.",
}
"""The groups of commands with their help. The module `commands/NAME.py` has the commands."""

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
    usage.usage,
    trust.trust,
):
    command(app)(_command)
app.add_typer(serve.serve, name="serve")
for _name, _help in GROUPS.items():
    app.add_typer(typer.Typer(cls=LazyGroup, help=_help, rich_markup_mode=None), name=_name)


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
