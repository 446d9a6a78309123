"""The lines of `trunkline events` without a task."""

import pytest

from harness.terminal import read_until, terminal
from trunkline.cli.all_events import EventLines
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2

TASK_ID, OTHER_ID = "k3v9wq2m-00000000000000000000000a", "k3v9wq2m-00000000000000000000000b"


def status(text: str) -> event_pb2.EventBatch:
    """Return the event of a status with a text, at 09:05:07."""
    batch = event_pb2.EventBatch()
    batch.header.time.FromSeconds(9 * 3600 + 5 * 60 + 7)
    change = batch.events.add().status.status
    change.state = task_pb2.TASK_STATE_WORKING
    change.message.parts.add().text = text
    return batch


def show_two_tasks() -> None:
    """Print events of two tasks, in turns."""
    lines = EventLines()
    first = snapshot_pb2.TaskSummary(task_id=TASK_ID, agent="math")
    second = snapshot_pb2.TaskSummary(task_id=OTHER_ID, agent="echo")
    lines.show(first, status("Calling math/calculate, which works out a number exactly"))
    lines.show(first, status("one more"))
    lines.show(second, status("hello"))
    lines.show(first, status("the end"))


def test_a_terminal_shows_the_task_of_events_on_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(monkeypatch, columns=80) as reader:
        monkeypatch.setenv("NO_COLOR", "1")
        show_two_tasks()
        output = read_until(reader, b"the end\n")
    assert output.splitlines() == [
        f"{TASK_ID}  math",
        "09:05:07  state           working: Calling math/calculate, which works out a nu…",
        "09:05:07  state           working: one more",
        f"{OTHER_ID}  echo",
        "09:05:07  state           working: hello",
        f"{TASK_ID}  math",
        "09:05:07  state           working: the end",
    ]


def test_a_pipe_gets_the_task_on_the_line_of_each_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_two_tasks()
    assert capsys.readouterr().out.splitlines() == [
        f"09:05:07  {TASK_ID}  math        state           working: Calling math/calculate, which"
        " works out a number exactly",
        f"09:05:07  {TASK_ID}  math        state           working: one more",
        f"09:05:07  {OTHER_ID}  echo        state           working: hello",
        f"09:05:07  {TASK_ID}  math        state           working: the end",
    ]
