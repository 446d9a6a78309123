"""Reads the journal of a task, follows it, and prints its events."""

import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from rich.cells import cell_len

from trunkline.cli.directory import open_directory
from trunkline.cli.event_lines import EventDescriber
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import MeshCall, choose
from trunkline.cli.table_layout import cut_text
from trunkline.cli.terminal import paint_state, print_json, write
from trunkline.cli.times import render_duration
from trunkline.core.json_values import message_to_dict
from trunkline.core.printable import remove_controls
from trunkline.core.task_states import INTERRUPTED, TaskOutcome, find_outcome, state_name
from trunkline.errors import CursorExpiredError, InvalidArgumentError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import event_count
from trunkline.mesh.client import Directory, TaskStream
from trunkline.v1 import event_pb2, task_pb2

_EXIT_CODES: Final[Mapping[int, ExitCode]] = {
    task_pb2.TASK_STATE_COMPLETED: ExitCode.OK,
    task_pb2.TASK_STATE_CANCELED: ExitCode.CANCELED,
    **dict.fromkeys(INTERRUPTED, ExitCode.INPUT_REQUIRED),
}
_LEAST_COLUMNS: Final = 60


def choose_printer(
    task_id: str, wire: str, *, as_json: bool
) -> Callable[[event_pb2.EventBatch], None]:
    """Return what prints the events of a task: a line each, or the server-sent events of A2A.

    `wire` is a version of A2A, or "" for the journal's own events.

    Raises:
        InvalidArgumentError: there is no such wire.
    """
    if wire:
        return _build_wire_printer(wire, task_id)
    return print_json_events if as_json else EventPrinter().show


def end_of_turn(batch: event_pb2.EventBatch, code: ExitCode) -> ExitCode:
    """Return the exit code for the last status of a batch, else `code`."""
    for event in batch.events:
        if event.HasField("status"):
            state = event.status.status.state
            is_partial = find_outcome(state, event.status.metadata) is TaskOutcome.PARTIAL
            code = ExitCode.PARTIAL if is_partial else _EXIT_CODES.get(state, ExitCode.FAILED)
    return code


async def read_batches(
    task_id: str, call: MeshCall, *, follows: bool
) -> AsyncGenerator[event_pb2.EventBatch]:
    """Yield the events of a task. With `follows`, a cut stream resumes after the last event.

    Raises:
        InvalidArgumentError: single events are no longer retained.
        TaskNotFoundError: no running host has the task, or it is another account's.
    """
    async with open_directory(call.mesh, follows=follows) as directory:
        try:
            opened = _open_stream(directory, task_id, account=call.account, follows=follows)
            async with opened as stream:
                async for sealed_batches in stream:
                    for sealed in sealed_batches:
                        yield parse_batch(sealed)
        except CursorExpiredError:
            problem = "its single events are gone (`compact_after_s`)"
            advice = f"{problem}; `trunkline task {task_id}` shows its state"
            raise InvalidArgumentError(f"task {task_id}", advice) from None


def _open_stream(
    directory: Directory, task_id: str, *, account: str, follows: bool
) -> AbstractAsyncContextManager[TaskStream]:
    """Open the events of a task from its first one: up to the last one, or until the turn ends."""
    if not follows:
        client = directory.client_for_task(task_id)
        return client.watch_task(
            task_id, account=account, after=0, with_snapshot=False, until_head=True
        )
    # A stream that was open waits for a host that died. A command that begins says it at once.
    directory.get_task_host(task_id)
    return directory.watch(task_id, account=account, after=0, until_turn_ends=True)


class EventPrinter:
    """Prints a line for each event: its sequence, the time since the first one, agent, content."""

    def __init__(self) -> None:
        self._start_ns: int | None = None
        self._agent = ""
        self._describer = EventDescriber()

    def show(self, batch: event_pb2.EventBatch) -> None:
        """Print the events of a batch."""
        header = batch.header
        now_ns = header.time.ToNanoseconds()
        self._start_ns = now_ns if self._start_ns is None else self._start_ns
        sequence = header.first_sequence
        lines = []
        for event in batch.events:
            if event.HasField("created"):
                self._agent = event.created.agent
            agent = header.origin.agent or self._agent
            offset = f"+{render_duration(max(0, now_ns - self._start_ns) / 1e9)}"
            described = self._describer.describe(event, header.origin.task_id or header.task_id)
            line = f"{sequence:>4} {offset:>8}  {agent:<10}  {described}"
            lines.append(f"{fit_terminal(line, event)}\n")
            sequence += event_count(event)
        write("".join(lines))


def fit_terminal(line: str, event: event_pb2.Event) -> str:
    """Return the line of an event as a terminal shows it: cut to its width, states in colour.

    The ids of approvals and children are copied, so they are never cut.
    A terminal that would show only its beginning shows all of it, on several lines.
    """
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    if columns >= _LEAST_COLUMNS:
        line = remove_controls(line)
        before, copied, _ = line.partition(_copied_id(event))
        least = cell_len(before + copied) + 1 if copied else 0
        line = cut_text(line, max(columns, least))
    if event.HasField("status"):
        state = state_name(event.status.status.state)
        line = line.replace(f" {state}", f" {paint_state(state, sys.stdout)}", 1)
    return line


def _copied_id(event: event_pb2.Event) -> str:
    """Return the id in an event's line that its reader copies, or a text that no line has."""
    match event.WhichOneof("event"):
        case "approval_requested":
            return event.approval_requested.approval_id or "\n"
        case "approval_answered":
            return event.approval_answered.approval_id or "\n"
        case "child_started":
            return event.child_started.task_id or "\n"
        case "child_finished":
            return event.child_finished.task_id or "\n"
    return "\n"


def print_json_events(batch: event_pb2.EventBatch, task_id: str = "") -> None:
    """Print each event as a line of JSON, with its sequence and the header of its batch."""
    sequence = batch.header.first_sequence
    header = message_to_dict(batch.header, with_proto_names=True)
    for event in batch.events:
        content = message_to_dict(event, with_proto_names=True)
        line = {
            "task_id": task_id or None,
            "sequence": sequence,
            "epoch": batch.header.epoch,
            "time": header.get("time", ""),
            "origin": header.get("origin"),
            **content,
        }
        print_json({key: value for key, value in line.items() if value is not None})
        sequence += event_count(event)


def _build_wire_printer(wire: str, task_id: str) -> Callable[[event_pb2.EventBatch], None]:
    """Return a function that prints the server-sent events of a batch, as a client gets them."""
    from trunkline.a2a_wire.v0_1.json_writer import V01EventWriter
    from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
    from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
    from trunkline_bridge.a2a.projection import TaskProjection
    from trunkline_bridge.a2a.streams.event_renderer import EventFrame, EventRenderer, EventWriter

    writers: Mapping[str, Callable[[], EventWriter]] = {
        "v1": V1EventWriter,
        "v0.3": V03EventWriter,
        "original": lambda: V01EventWriter(task_id),
    }
    writer = choose("--wire", wire, writers)()
    projection = TaskProjection()
    renderer = EventRenderer(writer, EventFrame("", "", lambda error: {"error": error.text}))

    def show(batch: event_pb2.EventBatch) -> None:
        write("".join(map(renderer.render, projection.apply(batch))))

    return show
