"""The completion of words: the scripts for shells, and the words that they offer."""

from collections.abc import Sequence
from typing import Any, Final

import typer

FILES: Final = ":files"
"""The line that stands for the names of files, which the shell completes."""
# Options and arguments whose placeholders are these expect a file or a folder.
_FILE_PLACEHOLDERS: Final = frozenset({"FILE", "PATH", "DIR", "FOLDER"})

_BASH: Final = rf"""
_trunkline() {{
    local IFS=$'\n'
    COMPREPLY=($(trunkline completion words -- "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
    if [[ ${{COMPREPLY[0]}} == {FILES} ]]; then
        COMPREPLY=()
        compopt -o default
    fi
}}
complete -F _trunkline trunkline
"""
_ZSH: Final = rf"""#compdef trunkline
_trunkline() {{
    local -a items
    items=(${{(f)"$(trunkline completion words --zsh -- "${{(@)words[2,CURRENT]}}" 2>/dev/null)"}})
    if [[ $items[1] == {FILES} ]]; then _files; else _describe trunkline items; fi
}}
compdef _trunkline trunkline
"""
_FISH: Final = rf"""
function __trunkline
    set -l before (commandline -opc)
    set -l items (trunkline completion words --fish -- $before[2..] (commandline -ct) 2>/dev/null)
    if test "$items[1]" = {FILES}
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $items
    end
end
complete -c trunkline -f -a "(__trunkline)"
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""The script for each shell."""


def list_words(root: Any, words: Sequence[str]) -> list[tuple[str, str]] | None:  # noqa: ANN401
    """Return the commands, options or values that may stand in place of the last word.

    None: the names of files.
    """
    *earlier, incomplete = words or [""]
    if earlier[:1] == ["a2a"]:
        # Its arguments are not parsed by typer.
        from trunkline.cli.a2a_cli import completion

        return completion.list_words(words[1:])
    command = root
    context = typer.Context(root, info_name="trunkline", resilient_parsing=True)
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
            context = typer.Context(found, info_name=word, parent=context, resilient_parsing=True)
            command = found
        else:
            place += 1
    argument = None if incomplete.startswith("-") else _find_argument(command, place)
    parameter = option or argument
    if parameter is not None and parameter.metavar in _FILE_PLACEHOLDERS:
        return None
    items = (parameter or command).shell_complete(context, incomplete)
    return [(item.value, item.help or "") for item in items if item.type == "plain"]


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
