"""The command line: its commands, in the order in which help lists them.

`commands/` says what each takes; what it does is in the folder of that name, loaded when it runs.
"""

import sys
from typing import Annotated

import typer

from trunkline.cli.commands import a2a as talk
from trunkline.cli.commands import identity as public
from trunkline.cli.commands import inspect as inside
from trunkline.cli.commands import new
from trunkline.cli.commands import serve as serving
from trunkline.cli.commands import storage as kept
from trunkline.cli.exits import ExitCode
from trunkline.cli.plugins import PluginGroup
from trunkline.cli.terminal import accept_any_text
from trunkline.cli.usage import QuestionCommand, parse_and_run

# Rich help and tracebacks take half a second to load.
app = typer.Typer(
    name="trunkline",
    cls=PluginGroup,
    help="A mesh for AI agents.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serving.up)
app.command()(serving.join)
app.command(cls=QuestionCommand)(talk.ask)
for _command in (
    talk.chat,
    talk.demo,
    inside.agents,
    inside.tools,
    inside.tasks,
    inside.task,
    inside.cancel,
    inside.approvals,
    inside.approve,
    inside.reject,
    inside.trace,
):
    app.command()(_command)
app.add_typer(serving.serve, name="serve")
app.add_typer(inside.webhooks, name="webhooks")
app.add_typer(kept.data, name="data")
app.add_typer(public.keys, name="keys")
app.add_typer(public.card, name="card")
app.add_typer(new.new, name="new")


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
        raise typer.Exit(ExitCode.USAGE)
