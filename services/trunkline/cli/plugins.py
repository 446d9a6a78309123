"""Groups whose commands are loaded when they are used, and commands of installed packages.

Packages may import `declaration`, `exits`, `options`, `terminal` and `usage`. Entry points are
looked up only when a command needs them, because that takes a tenth of a second.
"""

import logging
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group_from_info
from typer.models import TyperInfo

COMMAND_GROUP = "trunkline.commands"
"""The entry-point group of commands. Each entry point refers to a `typer.Typer`."""

_COMPLETION_PARAMS: Final = ("install_completion", "show_completion")

logger = logging.getLogger(__name__)


class PluginGroup(TyperGroup):
    """A group of built-in commands and of commands from installed packages.

    A package's command never replaces a built-in one of the same name.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 typer has no name for it
        """Return the names of the built-in commands, then the names of commands of packages."""
        built_in = super().list_commands(ctx)
        return [*built_in, *(name for name in sorted(_find_commands()) if name not in built_in)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """Return a command, or None if there is none. A load error of a package is logged."""
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None or cmd_name not in (points := _find_commands()):
            return built_in
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
        # Only the built-in command completes words, for all commands.
        command.params = [each for each in command.params if each.name not in _COMPLETION_PARAMS]
        return command


class LazyGroup(TyperGroup):
    """A group of built-in commands, whose module is imported when one of them is needed."""

    def load(self) -> Any:  # noqa: ANN401  typer has no public name for it
        """Return the group with its commands."""
        module = import_module(f"trunkline.cli.commands.{self.name}")
        return get_group_from_info(
            TyperInfo(module.group, name=self.name, help=self.help),
            pretty_exceptions_short=False,
            suggest_commands=True,
            rich_markup_mode=None,
        )

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: Any = None,  # noqa: ANN401
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the context of the loaded group, which typer then runs."""
        return self.load().make_context(info_name, args, parent, **extra)


class AgentNamesCommand(TyperCommand):
    """A command whose help replaces `{agents}` by the names of the installed agents."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help."""
        from importlib.metadata import entry_points

        from trunkline.core.settings import AGENT_PLUGIN_GROUP

        names = sorted({point.name for point in entry_points(group=AGENT_PLUGIN_GROUP)})
        for param in self.params:
            text = getattr(param, "help", None)
            if text:
                param.help = text.replace("{agents}", ", ".join(["supervisor", *names]))  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _find_commands() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=COMMAND_GROUP)}
