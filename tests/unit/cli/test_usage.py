"""Wrong usage prints one line that refers to the help; a question may begin with a dash."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.mesh.command_line import CompletedCommand, run_in_process
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import resolve_base_url
from trunkline.cli.terminal import is_text
from trunkline.errors import ConfigurationError


def test_python_m_imports_no_module_of_the_current_folder(tmp_path: Path) -> None:
    for name in ("signal", "random", "typer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the folder replaced a module')")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    process = subprocess.run(
        [sys.executable, "-m", "trunkline.cli", "--help"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")


def test_no_command_replaces_the_interpreters_report_of_errors() -> None:
    """Typer's own fails for errors at the interpreter's end: `Error in sys.excepthook`."""
    before = sys.excepthook
    assert run_in_process("--version").exit == ExitCode.OK
    assert sys.excepthook is before


@pytest.fixture
def run_ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompletedCommand]:
    """Run `ask` without a mesh: it prints its question."""

    async def ask(_: object, question: str, **__: object) -> int:
        sys.stdout.write(f"{question}\n")
        return 0

    monkeypatch.setattr("trunkline.cli.ask.ask_agent", ask)
    return partial(run_in_process, "ask", "--url", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("ask",), "missing argument 'QUESTION'"),
        (("ask", "--agnet", "math", "x"), "no such option: --agnet"),
        (("ask", "-x", "3"), "no such option: -x"),
        (("ask", "x", "--timeout", "soon"), "invalid value for '--timeout'"),
        (("ask", "-5", "x"), "got unexpected extra argument"),
        (("webhooks", "show"), "missing argument "),
        (("frob",), "no such command 'frob'"),
        (("tsks",), "no such command 'tsks' (did you mean 'tasks', 'task'?); see "),
        (("tasks", "--frob"), "no such option: --frob; see "),
        (("--frob",), "no such option: --frob"),
        (("tools", "list", "--url", "http://x"), "no such option: --url (give --mesh HOST:PORT"),
        (("docs", "list", "--url", "http://x"), "no such option: --url (it calls no mesh: give"),
    ],
)
def test_wrong_usage_is_one_line(words: tuple[str, ...], line: str) -> None:
    ended = run_in_process(*words)
    assert (ended.exit, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {line}")
    assert ended.err.endswith("--help'\n")
    assert ended.err.count("\n") == 1


def test_a_process_ends_as_its_command_does() -> None:
    words = (sys.executable, "-m", "trunkline.cli", "ask", "x", b"\xff\xfe")
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("error: argument 3 is not UTF-8 text")
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("group", "member"),
    [
        *(("config", "schema"), ("webhooks", "replay"), ("workflow", "validate"), ("docs", "add")),
        *(("messages", "send"), ("rooms", "join"), ("mesh", "token"), ("data", "check")),
    ],
)
def test_a_group_without_a_command_prints_its_help(group: str, member: str) -> None:
    ended = run_in_process(group)
    assert (ended.exit, ended.out) == (2, "")
    assert ended.err.startswith(f"Usage: trunkline {group} [OPTIONS] COMMAND")
    assert f"\n  {member} " in ended.err


@pytest.mark.parametrize("question", ["-5+3", "-3h", "-x^2 = 4", "- 5", "--5", "-(1+2)=y"])
def test_a_question_may_begin_with_a_dash(
    run_ask: Callable[..., CompletedCommand], question: str
) -> None:
    ended = run_ask("--timeout", "5", question, "--agent", "math")
    assert (ended.exit, ended.out, ended.err) == (0, f"{question}\n", "")


def test_an_option_after_two_dashes_is_a_question(
    run_ask: Callable[..., CompletedCommand],
) -> None:
    ended = run_ask("--", "--help")
    assert (ended.exit, ended.out) == (0, "--help\n")


def test_an_invalid_url_is_reported_by_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_URL", "nonsense")
    with pytest.raises(ConfigurationError, match=r"^TRUNKLINE_URL: 'nonsense' is not a URL"):
        resolve_base_url(None)
    with pytest.raises(ConfigurationError, match=r"^--url: 'other' is not a URL"):
        resolve_base_url("other")
    with pytest.raises(ConfigurationError, match=r"^--url: 'http://localhost:99999' is not a URL"):
        resolve_base_url("http://localhost:99999")
    monkeypatch.setenv("TRUNKLINE_URL", "http://example.com/")
    assert resolve_base_url(None) == "http://example.com"


def test_undecodable_bytes_are_no_text() -> None:
    assert is_text("é€😀")
    assert not is_text(b"\xff\xfe".decode(errors="surrogateescape"))


@pytest.mark.parametrize(("level", "has_traceback"), [("warning", False), ("debug", True)])
def test_failed_output_prints_one_line_and_logs_the_traceback_in_debug_mode(
    level: str, *, has_traceback: bool
) -> None:
    code = (
        "from trunkline.cli.exits import finish\n"
        "def work():\n    print('x' * 100000, flush=True)\n    return 0\n"
        "try:\n    finish(work)\nexcept Exception as end:\n    raise SystemExit(end.exit_code)"
    )
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "TRUNKLINE_LOG_LEVEL": level},
        )
    *log, line = process.stderr.splitlines()
    assert line.startswith("error: unexpected OSError (No space left on device)")
    assert ("in work" in "".join(log)) is has_traceback
    assert has_traceback or log == []
