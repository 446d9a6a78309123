"""Control sequences in text from others do not reach a terminal."""

import io
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import pytest

from harness.terminal import read_until, terminal
from trunkline.cli.terminal import RED, accept_any_text, paint, print_json, print_stderr, write
from trunkline.processes.run import _print_state

HOSTILE = (
    "red \x1b[31m, title \x1b]0;owned\x07, away \x1b[2J\x9b2J\r, hidden \x1b[8m, "
    "turned \u202e\u202a\u2066\u2067\u2068\u2069\u200e\u200f\u061c, lines \u2028\u2029"
)


def test_a_terminal_shows_text_of_others_without_control_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(monkeypatch) as reader:
        write(f"{HOSTILE}\n")
        output = read_until(reader, b"\n")
    assert output == "red [31m, title ]0;owned, away [2J2J, hidden [8m, turned , lines \n"


def test_painted_text_of_others_keeps_no_colour_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as reader:
        write(f"{paint(HOSTILE, RED, sys.stdout)}\n")
        output = read_until(reader, b"\n")
    assert output.startswith("\x1b[31mred [31m, title ")
    assert output.endswith("lines \x1b[0m\n")
    assert output.count("\x1b") == 2


def test_a_control_sequence_split_across_writes_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(monkeypatch) as reader:
        for character in HOSTILE:
            write(character)
        write("\n")
        output = read_until(reader, b"\n")
    assert "\x1b" not in output


def test_own_colours_and_any_script_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as reader:
        write(paint("Żółć 中文\tKäse 🧀\n", RED, sys.stdout))
        assert read_until(reader, b"\x1b[0m") == "\x1b[31mŻółć 中文\tKäse 🧀\n\x1b[0m"


def test_a_pipe_gets_unchanged_text(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    pipe = io.TextIOWrapper(buffer, encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    accept_any_text()
    write(f"{HOSTILE}\n")
    assert buffer.getvalue().decode() == HOSTILE + "\n"


@pytest.mark.parametrize(
    ("name", "print_line"),
    [
        ("stdout", lambda: _print_state("ready", {"agent": "hello"})),
        ("stdout", lambda: print_json({"http": "http://127.0.0.1:8000"})),
        ("stderr", lambda: print_stderr("waiting for a mesh")),
    ],
)
def test_a_line_reaches_an_unbuffered_stream_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, name: str, print_line: Callable[[], None]
) -> None:
    pieces: list[bytes] = []

    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            pieces.append(bytes(data))
            return len(data)

    # As Python opens stdout and stderr with PYTHONUNBUFFERED=1.
    stream = io.TextIOWrapper(cast("BinaryIO", Pipe()), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, name, stream)
    print_line()
    written = [piece for piece in pieces if piece]
    assert len(written) == 1
    assert written[0].endswith(b"\n")
