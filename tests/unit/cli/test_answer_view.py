"""Answers on a terminal: Markdown is rendered, and text of others has no control over it."""

import io
import os
import sys

import pytest

from harness.terminal import read_until, terminal
from trunkline.cli.answer_view import AnswerView, split_blocks
from trunkline.cli.rich_console import looks_like_markdown, open_console, render_markdown
from trunkline.cli.terminal import write

END = b"~\n"


def render(monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Return rendered Markdown without colours, as a terminal of 80 columns shows it."""
    with terminal(monkeypatch) as reader:
        monkeypatch.setenv("NO_COLOR", "1")
        open_console(sys.stdout).print(render_markdown(text))
        write("~\n")
        output = read_until(reader, END)
    return "\n".join(line.rstrip() for line in output.splitlines()[:-1])


def test_markdown_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    output = render(monkeypatch, "## Title\n\nsome **bold** text\n\n- one\n- two\n")
    assert "**" not in output
    assert "#" not in output
    assert " • one\n • two" in output


@pytest.mark.parametrize("text", ["- one", "# Title", "| a |\n|---|\n| 1 |", "```\nx\n```"])
def test_blocks_have_no_blank_lines_at_their_ends(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    lines = render(monkeypatch, text).splitlines()
    assert lines[0].strip()
    assert lines[-1].strip()


def test_arithmetic_and_line_breaks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    output = render(monkeypatch, "x**2 + y**2 = 2*3*4\nf(x)*(y)*2 <b>a</b>")
    assert output.rstrip() == "x**2 + y**2 = 2*3*4\nf(x)*(y)*2 <b>a</b>"


def test_a_link_shows_its_target_and_is_not_clickable(monkeypatch: pytest.MonkeyPatch) -> None:
    output = render(monkeypatch, "[https://bank.example](https://evil.example/x)")
    assert "https://evil.example/x" in output
    assert "\x1b]8" not in output


@pytest.mark.parametrize(
    "text",
    [
        "# \x1b[2J\x9b2J\x07 &#x202e;turned \u202e",
        "`\x1b]0;owned\x07`",
        "```\n\x1b[31m\n```",
        "[a\x1b[1m](http://x/\u202e)",
    ],
)
def test_markdown_of_others_has_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    output = render(monkeypatch, text)
    assert not {"\x07", "\x9b", "\u202e"} & set(output)
    assert all(piece.startswith("[") for piece in output.split("\x1b")[1:])
    assert "\x1b[2J" not in output
    assert "\x1b]" not in output


def test_markup_of_rich_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert render(monkeypatch, "# t\n[red]no[/red] :smile:").endswith("[red]no[/red] :smile:")


@pytest.mark.parametrize(
    "text",
    [
        *("36", "1. 5 apples", "x = 2\ny = 3", "2 * 3", "a_b_c", "[1, 2]"),
        # A search of quadratic time would take minutes.
        *("[" * 200_000, "[a](" * 50_000),
    ],
)
def test_plain_answers_do_not_look_like_markdown(text: str) -> None:
    assert not looks_like_markdown(text)


def test_blocks_end_at_blank_lines_outside_of_code() -> None:
    text = "a\n\n```\nb\n\nc\n```\n\nd"
    assert split_blocks(text) == ["a\n\n", "```\nb\n\nc\n```\n\n", "d"]


def test_an_answer_arrives_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as reader:
        view = AnswerView()
        for piece in ("# Ti", "tle\n", "\nthe ", "rest\n", "\n", "plain"):
            view.write(piece)
        view.close()
        view.write("\n~\n")
        output = read_until(reader, END)
    assert "the rest\n\n" in output
    assert output.endswith("plain\n~\n")
    assert "# Title" not in output.rpartition("\x1b[2K")[2]


def test_plain_answers_and_pipes_get_the_text_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as reader:
        view = AnswerView(is_plain=True)
        view.write("# **x**\n~\n")
        assert read_until(reader, END) == "# **x**\n~\n"
        view.close()
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stdout", pipe)
    view = AnswerView()
    view.show_progress("waiting")
    view.write("# **x**\n")
    view.close()
    assert pipe.getvalue() == "# **x**\n"


def test_a_spinner_shows_progress_until_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as reader:
        monkeypatch.setattr(sys, "stderr", sys.stdout)
        view = AnswerView(is_plain=True)
        view.show_progress("math: \x1b[31mcalls calculate")
        view.write("36\n~\n")
        output = read_until(reader, END)
        view.close()
    assert "math: [31mcalls calculate" in output
    assert output.endswith("36\n~\n")


def test_a_dumb_terminal_shows_no_spinner(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as reader:
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "stderr", sys.stdout)
        view = AnswerView()
        view.show_progress("waiting")
        view.write("36\n")
        view.close()
        os.set_blocking(reader, False)
        assert os.read(reader, 1000) == b"36\n"
