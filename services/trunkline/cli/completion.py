"""The words that the completion of shells offers."""

from collections.abc import Sequence
from typing import Any, Final

import typer

from trunkline.cli.plugins import LazyGroup

# Options and arguments whose placeholders are these expect a file or a folder.
_FILE_PLACEHOLDERS: Final = frozenset({"FILE", "PATH", "DIR", "FOLDER"})


def list_words(root: Any, words: Sequence[str]) -> list[tuple[str, str]] | None:  # noqa: ANN401
    """Return the commands, options or values that may stand in place of the last word.

    None stands for the names of files, which the shell completes.
    """
    *earlier, incomplete = words or [""]
    if earlier[:1] == ["a2a"]:
        # Its code is slow to import, so it is no part of the other commands.
        from trunkline.cli.a2a_cli.program import build_commands

        root = build_commands()
        earlier = _order_standard_words(root, earlier[1:], incomplete)
    command = root
    context = _open_context(root, "trunkline")
    option: Any = None
    place = 0
    for word in earlier:
        if option is not None:
            option = None
        elif word.startswith("-"):
            option = _find_option(command, word)
        elif hasattr(command, "get_command"):
            found = command.get_command(context, word)
            if found is None:
                return []
            if isinstance(found, LazyGroup):
                found = found.load()
            context = _open_context(found, word, parent=context)
            command = found
        else:
            place += 1
    argument = None if incomplete.startswith("-") else _find_argument(command, place)
    parameter = option or argument
    if parameter is not None and parameter.metavar in _FILE_PLACEHOLDERS:
        return None
    items = (parameter or command).shell_complete(context, incomplete)
    return [(item.value, item.help or "") for item in items if item.type == "plain"]


def _open_context(command: Any, word: str, *, parent: Any = None) -> Any:  # noqa: ANN401
    """Return the context in which a command completes, with the names of its option for help."""
    return typer.Context(
        command, info_name=word, parent=parent, resilient_parsing=True, **command.context_settings
    )


def _order_standard_words(root: Any, earlier: Sequence[str], incomplete: str) -> list[str]:  # noqa: ANN401
    """Return the words of a command of `trunkline a2a` with its options after them."""
    from trunkline.cli.a2a_cli.declaration import split_words

    split = split_words(root, earlier)
    if not split.is_group or split.has_unknown_word:
        return [*split.words, *split.rest]
    if split.awaits_value or incomplete.startswith("-"):
        # All commands have these options, and this command has no other.
        return ["config", "show", *split.rest]
    return list(split.words)


def _find_option(command: Any, word: str) -> Any:  # noqa: ANN401
    """Return the option of a word that expects a value next, or None."""
    for option in command.params:
        if word in option.opts and not getattr(option, "is_flag", False):
            return option
    return None


def _find_argument(command: Any, place: int) -> Any:  # noqa: ANN401
    """Return the argument of a command at a place, or None."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    return arguments[min(place, len(arguments) - 1)] if arguments else None
