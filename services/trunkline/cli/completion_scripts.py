"""The scripts that complete the words of `trunkline` in shells."""

from typing import Final

FILES: Final = ":files"
"""The line that stands for the names of files, which the shell completes."""

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
