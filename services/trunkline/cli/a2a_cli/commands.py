"""The commands of `trunkline a2a`, in the order in which help lists them."""

from typing import Final

from trunkline.cli.a2a_cli import cards, push_configs, tasks
from trunkline.cli.a2a_cli.chat import chat
from trunkline.cli.a2a_cli.configuration import describe_values
from trunkline.cli.a2a_cli.conformance import check_agent
from trunkline.cli.a2a_cli.declaration import Command, argument, command
from trunkline.cli.a2a_cli.demo_server import run_demo_server
from trunkline.cli.a2a_cli.login import log_in
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.sending import send
from trunkline.cli.a2a_cli.session import CommandContext
from trunkline.cli.completion_scripts import SCRIPTS


@command("config show", "Show each setting and where it comes from.")
async def show_configuration(context: CommandContext) -> None:
    """Print the value and the source of each option, without secrets."""
    rows = describe_values(context.configuration)
    fields: list[tuple[str, object]] = [
        (row["name"], f"{row.pop('text')} ({row['source']})".lstrip()) for row in rows
    ]
    ResultPrinter(context).fields({"settings": rows}, fields)


@command("completion", "Print a completion script.", argument("shell", choices=tuple(SCRIPTS)))
async def print_script(context: CommandContext, *, shell: str) -> None:
    """Print the script of `trunkline` for a shell, which also completes these commands."""
    context.console.write_text(f"{SCRIPTS[shell].strip()}\n")


HELP: Final = Command(
    ("help",),
    "Show usage.",
    (argument("command", nargs="*", metavar="COMMAND", help="the command to explain"),),
)
COMMANDS: Final = (
    send,
    tasks.get,
    tasks.list_tasks,
    tasks.cancel,
    tasks.subscribe,
    tasks.download,
    push_configs.create,
    push_configs.get,
    push_configs.list_configs,
    push_configs.delete,
    push_configs.listen,
    cards.get,
    log_in,
    show_configuration,
    chat,
    check_agent,
    run_demo_server,
    print_script,
    HELP,
)
