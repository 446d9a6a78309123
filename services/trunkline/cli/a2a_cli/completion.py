"""Words that a shell may complete in `trunkline a2a`. The scripts are those of `trunkline`."""

import argparse
from collections.abc import Mapping, Sequence

from trunkline.cli.a2a_cli.commands import COMMANDS
from trunkline.cli.a2a_cli.parser import build_parser, split_words


def list_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the commands, options or values that may stand in place of the last word.

    `words` follow `a2a`. Each result comes with its help.
    """
    *earlier, incomplete = words or [""]
    command, rest = split_words(earlier)
    specs = [spec for spec in COMMANDS if spec.words[: len(command)] == command]
    is_complete = specs[0].words == command
    # All commands have the same options, but for their own ones.
    actions = build_parser(specs[0], {})._actions  # noqa: SLF001  argparse lists them nowhere else
    options = {name: action for action in actions for name in action.option_strings}
    if option := _expects_value(rest, options):
        found = _choices(option)
    elif incomplete.startswith("-"):
        found = {name: action.help or "" for name, action in options.items()}
    elif is_complete:
        found = {}
        for action in actions:
            found |= {} if action.option_strings else _choices(action)
    elif rest and not rest[0].startswith("-"):
        found = {}
    else:
        found = {}
        for spec in specs:
            found.setdefault(spec.words[len(command)], spec.help)
    return [
        (word, text.replace("%%", "%"))
        for word, text in found.items()
        if word.startswith(incomplete)
    ]


def _expects_value(
    words: Sequence[str], options: Mapping[str, argparse.Action]
) -> argparse.Action | None:
    """Return the option whose value comes after these words."""
    option = options.get(words[-1]) if words else None
    return option if option is not None and option.nargs != 0 else None


def _choices(action: argparse.Action) -> dict[str, str]:
    return {str(choice): "" for choice in action.choices or ()}
