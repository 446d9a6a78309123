"""A terminal in place of stdout."""

import io
import os
import pty
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trunkline.cli.terminal import accept_any_text


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int = 80) -> Iterator[int]:
    """Replace stdout by a terminal; yield the file descriptor to read its output from."""
    reader, writer = pty.openpty()
    tty.setraw(writer)
    termios.tcsetwinsize(writer, (24, columns))
    stream = io.TextIOWrapper(io.FileIO(writer, "w"), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", io.StringIO())
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", str(columns))
        patch.delenv("NO_COLOR", raising=False)
        accept_any_text()
        yield reader
        sys.stdout.close()
    stream.close()
    os.close(reader)


def read_until(reader: int, end: bytes) -> str:
    """Read the terminal's output up to `end`; it may arrive in pieces."""
    output = b""
    while not output.endswith(end):
        output += os.read(reader, 1000)
    return output.decode()
