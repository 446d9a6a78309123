"""The page of screens shows commands that exist, as wide as it says, with ids in full."""

import re
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len

from trunkline.cli.app import app

PAGE = Path(__file__).parents[3] / "docs/screens.md"
# Commands whose lines are not cut.
UNCUT = {"task", "trace", "logs"}
TASK_ID = re.compile(r"k3v9wq2m-[0-9a-f]+")


def screens(width: int) -> list[tuple[str, list[str]]]:
    """Return the commands of the section of a width, each with its lines."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {width} columns\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```text\n\$ trunkline (.+)\n((?:.*\n)*?)```", section)
    return [(command, text.splitlines()) for command, text in blocks]


@pytest.mark.parametrize("width", [80, 120])
def test_screens_have_their_width_and_whole_ids(width: int) -> None:
    shown = screens(width)
    assert len(shown) > 10
    for command, lines in shown:
        if command.split()[0] not in UNCUT and not lines[0].startswith("error: "):
            assert max(map(cell_len, lines)) <= width, command
        assert {len(task_id) for task_id in TASK_ID.findall("\n".join(lines))} <= {33}


def test_screens_show_commands_that_exist() -> None:
    group = typer.main.get_command(app)
    names = group.list_commands(typer.Context(group))  # type: ignore[attr-defined]
    shown = {command.split()[0] for command, _ in screens(80)}
    assert shown <= set(names)
    assert {"ask", "tasks", "task", "events", "trace", "agents", "tools"} <= shown
