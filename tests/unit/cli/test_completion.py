"""Completion of words in shells: commands, options and values."""

import subprocess

import pytest

from harness.mesh.command_line import run_in_process


def complete(*words: str) -> list[str]:
    return run_in_process("completion", "words", "--", *words).out.splitlines()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ta",), ["tasks", "task"]),
        (("config", ""), ["show", "check", "schema"]),
        (("tasks", "--s"), ["--state", "--since"]),
        (("tasks", "--state", "in"), ["input-required"]),
        (("tasks", "--follow", "--sta"), ["--state"]),
        (("config", "schema", "m"), ["mcp"]),
        (("nothing", ""), []),
        (("task", ""), []),
        (("ask", "--agent", ""), []),
        (("ask", "--file", ""), [":files"]),
        (("up", "--data", "x"), [":files"]),
        (("config", "check", ""), [":files"]),
        (("a2a", "task", "push-config", "c"), ["create"]),
        (("a2a", "task", "get", "--outp"), ["--output"]),
        (("a2a", "task", "list", "-h"), ["-h"]),
    ],
)
def test_words_are_completed(words: tuple[str, ...], found: list[str]) -> None:
    assert complete(*words) == found


def test_some_shells_also_get_the_help() -> None:
    zsh = run_in_process("completion", "words", "--zsh", "--", "canc").out
    fish = run_in_process("completion", "words", "--fish", "--", "canc").out
    assert zsh.startswith("cancel:Cancel a task")
    assert fish.startswith("cancel\tCancel a task")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    assert "trunkline completion words" in run_in_process("completion", shell).out


@pytest.mark.parametrize(
    ("answers", "replies"),
    [
        ('printf "%s\\n" "$3" "$4"', "-- config\n"),
        ("echo :files", "default\n\n"),
    ],
)
def test_the_script_of_bash_completes_words_and_files(answers: str, replies: str) -> None:
    script = run_in_process("completion", "bash").out
    functions = f'trunkline() {{ {answers}; }}; compopt() {{ echo "$2"; }}'
    call = 'COMP_WORDS=(trunkline config s); COMP_CWORD=2; _trunkline; echo "${COMPREPLY[@]}"'
    shell = subprocess.run(
        ["bash", "-c", f"{script}\n{functions}\n{call}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == replies
