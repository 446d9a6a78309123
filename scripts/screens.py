"""Writes docs/screens.md: the main commands as they look on terminals of 80 and 120 columns.

Runs a mesh in a temporary folder and each command on a separate terminal. Ids are replaced by
others of the same length that are the same in every run.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/screens.md"
COMMAND = (sys.executable, "-P", "-m", "trunkline.cli")
WIDTHS = (80, 120)
HTTP, MESH, A2A_GRPC = "127.0.0.1:18000", "127.0.0.1:18051", "127.0.0.1:18052"
QUESTION = "what is 15% of 240, and convert 36 USD to EUR"
# The commands, and the most lines of each that are shown. TASK is the task of the question.
SCREENS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("ask", QUESTION), 20),
    (("tasks",), 20),
    (("task", "TASK"), 30),
    (("events", "TASK"), 12),
    (("trace",), 10),
    (("trace", "TASK"), 14),
    (("agents",), 10),
    (("top", "--once"), 32),
    (("tools",), 12),
    (("config", "show", "--set"), 20),
    (("logs", "-n", "5"), 8),
    (("task", "no-such-task"), 4),
    (("tasks", "--state", "finished"), 4),
)
INTRODUCTION = """# Screens

The main commands as they look on terminals of 80 and 120 columns, without colours. The script
`scripts/screens.py` writes this page from a mesh that it runs. Longer outputs end with `…`.
"""

_ID = re.compile(
    r"\b(?:(?P<journal>[0-9a-z]{8})-)?(?P<id>[0-9a-f]{32}|[0-9a-f]{24})\b"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.|([\r\n])|([^\x1b\r\n]+)")


def main() -> None:
    """Write the page."""
    sections = [INTRODUCTION]
    with tempfile.TemporaryDirectory() as name, running_mesh(Path(name)) as report:
        # Loads what the first question needs: its times are not those of a warm mesh.
        run([*COMMAND, "ask", "--url", f"http://{HTTP}", QUESTION], Path(name), {})
        sections.append(f"## trunkline up\n\n```text\n$ trunkline up\n{report}\n```\n")
        for width in WIDTHS:
            sections.append(f"## {width} columns\n")
            sections += [
                f"```text\n$ trunkline {quote(words)}\n{screen}\n```\n"
                for words, screen in screens(Path(name), width)
            ]
    ids: dict[str, str] = {}
    page = "\n".join(sections)
    PAGE.write_text(_ID.sub(lambda match: rename(match, ids), page), encoding="utf-8")


@contextmanager
def running_mesh(folder: Path) -> Iterator[str]:
    """Run a mesh while the block runs; yield what it printed at its start."""
    flags = ("--http", HTTP, "--mesh", MESH, "--a2a-grpc", A2A_GRPC, "--data", "data")
    (folder / "trunkline.toml").write_text(
        'data_dir = "data"\nlog_level = "warning"\n\n[agent.math]\ntimeout_s = 300\n'
    )
    mesh = subprocess.Popen(
        [*COMMAND, "up", *flags],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("settings"):
            line = mesh.stdout.readline() if mesh.stdout else ""
            if not line:
                raise SystemExit(f"the mesh has ended: {lines}")
            lines.append(line.rstrip())
        yield "\n".join(lines)
    finally:
        mesh.terminate()
        mesh.wait()


def screens(folder: Path, width: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each command with what it shows."""
    environment = {"TRUNKLINE_URL": f"http://{HTTP}", "TRUNKLINE_MESH": MESH}
    task_id = ""
    for words, limit in SCREENS:
        if "TASK" in words and not task_id:
            listing = run(
                [*COMMAND, "tasks", "--agent", "supervisor", "--json"], folder, environment
            )
            task_id = re.findall(r'"task_id": "([^"]+)"', listing)[0]
        actual = tuple(task_id if word == "TASK" else word for word in words)
        shown = run([*COMMAND, *actual], folder, environment, width=width)
        lines = render(shown).rstrip().splitlines()
        yield actual, "\n".join(lines[:limit] + (["…"] if len(lines) > limit else []))


def run(
    command: list[str], folder: Path, environment: Mapping[str, str], *, width: int = 200
) -> str:
    """Run a command on a terminal; return all that it wrote there."""
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (50, width))
    variables = {**os.environ, **environment, "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(
        command, cwd=folder, stdin=writer, stdout=writer, stderr=writer, env=variables
    )
    os.close(writer)
    output = b""
    while piece := read(reader):
        output += piece
    process.wait()
    os.close(reader)
    return output.decode()


def read(reader: int) -> bytes:
    """Return more output of a terminal; nothing after its end."""
    try:
        return os.read(reader, 65536)
    except OSError:
        return b""


def render(output: str) -> str:
    """Return the text that a terminal shows in the end: lines may have been written over."""
    lines = [""]
    row = column = 0
    for parameters, final, newline, text in _CONTROL.findall(output):
        if newline == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif newline == "\r":
            column = 0
        elif text:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + text + line[column + len(text) :]
            column += len(text)
        elif final == "A":
            row = max(0, row - int(parameters or 1))
        elif final == "K":
            lines[row] = ""
    return "\n".join(line.rstrip() for line in lines)


def rename(match: re.Match[str], ids: dict[str, str]) -> str:
    """Return an id of the same length that does not depend on the run."""
    known = ids.setdefault(match[0], f"{len(ids) + 1:x}")
    if not match["id"]:
        return f"01a20b91-0000-7000-8000-{known.rjust(12, '0')}"
    own = known.rjust(len(match["id"]), "0")
    return f"k3v9wq2m-{own}" if match["journal"] else own


def quote(words: tuple[str, ...]) -> str:
    """Return the words of a command as one types them."""
    return " ".join(f'"{word}"' if " " in word else word for word in words)


if __name__ == "__main__":
    main()
