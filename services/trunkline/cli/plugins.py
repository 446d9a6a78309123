"""Commands and names that installed packages add to the command line.

The modules `exits`, `options`, `terminal` and `usage` are public for the commands of plugins. Entry
points are looked up only when a command needs them, because that takes a tenth of a second.
"""

import logging
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMAND_GROUP = "trunkline.commands"
"""The entry-point group of packages that bring a command; each refers to a `typer.Typer`."""

logger = logging.getLogger(__name__)


class PluginGroup(TyperGroup):
    """A group of commands that also has those of installed packages.

    A command of a package never replaces one of ours.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 typer has no name for it
        """Return the names of our commands, then those of packages."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in sorted(_find_commands()) if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a command, or None; a package's command that can't be loaded is logged."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in (points := _find_commands()):
            return own
        try:
            loaded = points[cmd_name].load()
            if not isinstance(loaded, typer.Typer):
                raise TypeError("it is not a typer.Typer")
            command = get_command(loaded)
        # A package may raise anything while it is imported.
        except Exception as error:  # noqa: BLE001
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            logger.error("command.ignored", extra={"command": cmd_name, "problem": problem})
            return None
        command.name = cmd_name
        return command


class AgentNamesCommand(TyperCommand):
    """A command whose help lists the installed agents behind `{agents}`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help."""
        from importlib.metadata import entry_points

        from trunkline.settings import AGENT_PLUGIN_GROUP

        names = sorted({point.name for point in entry_points(group=AGENT_PLUGIN_GROUP)})
        for param in self.params:
            text = getattr(param, "help", None)
            if text:
                param.help = text.replace("{agents}", ", ".join(["supervisor", *names]))  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _find_commands() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=COMMAND_GROUP)}
