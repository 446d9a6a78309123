"""`completion`: scripts that complete `trunkline a2a` in a shell."""

from collections.abc import Mapping, Sequence
from typing import Final

from trunkline.cli.a2a_cli.options import OPTIONS
from trunkline.cli.a2a_cli.parser import COMMANDS

_BASH: Final = """\
# Completion of `trunkline a2a`. Load it with: source <(trunkline a2a completion bash)
_trunkline_a2a() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" word
  [[ ${{COMP_WORDS[1]}} == a2a ]] || return
  for word in "${{COMP_WORDS[@]:2:COMP_CWORD-2}}"; do
    [[ $word == -* ]] || path="$path $word"
  done
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "{flags}" -- "$current"))
    return
  fi
  case "${{path# }}" in
{cases}
  esac
}}
complete -o default -F _trunkline_a2a trunkline
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"
_FISH_WORD: Final = (
    "complete -c trunkline -n '__fish_seen_subcommand_from a2a{seen}' -f -a '{words}'"
)
_FISH_FLAG: Final = (
    "complete -c trunkline -n '__fish_seen_subcommand_from a2a' -l '{name}' -d '{help}'"
)


def list_a2a_words(earlier: Sequence[str], incomplete: str) -> list[str]:
    """Return the words or flags of `trunkline a2a` that may stand in place of the last word."""
    if incomplete.startswith("-"):
        words = _flags()
    else:
        path = " ".join(word for word in earlier if not word.startswith("-"))
        words = _next_words().get(path, "").split()
    return [word for word in words if word.startswith(incomplete)]


def completion_script(shell: str) -> str:
    """Return the script for `bash`, `zsh` or `fish`."""
    if shell == "fish":
        return _fish()
    cases = "\n".join(
        f'    "{path}") COMPREPLY=($(compgen -W "{words}" -- "$current"));;'
        for path, words in _next_words().items()
    )
    script = _BASH.format(flags=" ".join(_flags()), cases=cases)
    return _ZSH + script if shell == "zsh" else script


def _flags() -> list[str]:
    flags = [f"--{name}" for option in OPTIONS for name in (option.name, *option.aliases)]
    return [*flags, "--config", "--help", "--version", "--stream"]


def _next_words() -> Mapping[str, str]:
    """Return the words that may follow the words of a command so far."""
    following: dict[str, list[str]] = {}
    for spec in COMMANDS:
        for length in range(len(spec.words)):
            words = following.setdefault(" ".join(spec.words[:length]), [])
            if spec.words[length] not in words:
                words.append(spec.words[length])
    return {path: " ".join(words) for path, words in following.items()}


def _fish() -> str:
    lines = [
        "# Completion of `trunkline a2a`. Load it with: trunkline a2a completion fish | source"
    ]
    for path, words in _next_words().items():
        seen = "".join(f"; and __fish_seen_subcommand_from {word}" for word in path.split())
        lines.append(_FISH_WORD.format(seen=seen, words=words))
    for option in OPTIONS:
        text = option.help.replace("'", "")
        lines.append(_FISH_FLAG.format(name=option.name, help=text))
    return "\n".join(lines) + "\n"
