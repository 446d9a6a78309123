"""Prints results and events in the chosen format: one document, JSON Lines, or text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from trunkline.a2a_wire.json_values import Json
from trunkline.cli.a2a_cli.card import ResolvedCard
from trunkline.cli.a2a_cli.console import Console
from trunkline.cli.a2a_cli.session import CommandContext
from trunkline.cli.a2a_cli.text_format import (
    TERMINAL_STATES,
    TextFormat,
    block,
    field_line,
    resume_command,
    task_fields,
)
from trunkline.cli.a2a_cli.waiting import TaskProgress

_COMPLETED: Final = "TASK_STATE_COMPLETED"
CANCELED: Final = "TASK_STATE_CANCELED"


def leave_out(
    console: Console, response: Json, name: str, find_problem: Callable[[object], str]
) -> list[Json]:
    """Return the entries of a list in a response. Warn of those with a problem, and omit them."""
    entries: list[Json] = []
    for index, entry in enumerate(response.get(name) or ()):
        if problem := find_problem(entry):
            console.warn(f"warning: {name}[{index}] is left out: it {problem}")
        else:
            entries.append(entry)
    return entries


class ResultPrinter:
    """Prints what a command returns."""

    def __init__(self, context: CommandContext) -> None:
        self._console = context.console
        self._is_json = context.options.is_json
        self._target = context.target
        self._text = TextFormat(context.target, is_verbose=bool(context.options.verbose))

    def task(self, task: Json, *, has_history: bool = False, wanted: str = _COMPLETED) -> None:
        """Print a task, and warn if it ended in another state than the wanted state."""
        self._print(task, self._text.task(task, has_history=has_history))
        self._warn_about(task, wanted)

    def response(self, response: Json) -> None:
        """Print a SendMessageResponse."""
        self._print(response, self._text.result(response))
        if isinstance(response.get("task"), dict):
            self._warn_about(response["task"])

    def event(self, event: Json) -> None:
        """Print an event of a stream at once."""
        self._print(event, self._text.event(event))

    def end_of_stream(self, progress: TaskProgress) -> None:
        """Repeat the identifiers and the state as text. JSON has them in its last event."""
        if not self._is_json and progress.task_id:
            ids = (progress.task_id, progress.context_id, progress.state)
            text = task_fields(*ids) + resume_command(self._target, *ids)
            self._console.write_text(text)
        self._warn_about({"status": {"state": progress.state}})

    def card(self, card: ResolvedCard, notes: Mapping[str, str]) -> None:
        """Print an agent card. As JSON, `notes` go to stderr."""
        self._print(card.value, self._text.card(card, notes))
        if self._is_json:
            for label, value in notes.items():
                self._console.warn(f"{label}: {value}")

    def fields(self, value: object, fields: Sequence[tuple[str, object]]) -> None:
        """Print a value as JSON, or its fields as text."""
        self._print(value, "".join(field_line(label, entry) for label, entry in fields))

    def tasks(self, response: Json, *, is_stream: bool) -> None:
        """Print a page of tasks: as JSON one document, or one task a line."""
        tasks = [task for task in response.get("tasks", ()) if isinstance(task, dict)]
        if self._is_json and is_stream:
            for task in tasks:
                self._console.write_json(task)
            return
        text = "".join(self._text.task(task) for task in tasks)
        text += field_line("Tasks", len(tasks))
        if response.get("totalSize") is not None:
            text += field_line("Total", response["totalSize"])
        if response.get("nextPageToken"):
            text += field_line("Next page", response["nextPageToken"])
        self._print(response, text)

    def sent(self, request: Json) -> None:
        """Show a request to a user who wants to see everything. With JSON, it is not shown."""
        from trunkline.cli.a2a_cli.console import pretty

        if not self._is_json:
            self._console.write_text(block("Sent", pretty(request)))

    def _print(self, value: object, text: str) -> None:
        if self._is_json:
            self._console.write_json(value)
        else:
            self._console.write_text(text)

    def _warn_about(self, task: Json, wanted: str = _COMPLETED) -> None:
        status = task.get("status")
        state = str(status.get("state", "")) if isinstance(status, dict) else ""
        if state in TERMINAL_STATES and state != wanted:
            problem = "did not complete" if wanted == _COMPLETED else "was not canceled"
            self._console.warn(f"warning: the task {problem}: {state}")
        elif state.endswith("_REQUIRED"):
            self._console.warn(f"warning: the task waits for you: {state}")
