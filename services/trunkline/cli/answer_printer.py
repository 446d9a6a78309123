"""Prints the answer of a turn while it arrives, and describes it when the turn is over.

The answer is the text of the task's artifacts, except artifacts that report progress. Files and
data get a line each, after the text. Printed text can't be withdrawn: if the agent replaces its
answer, only the lines are printed that were not printed before.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from trunkline.a2a_client.answers import (
    ArtifactChange,
    ClientAnswer,
    ClientEvent,
    StatusChange,
    TextChunk,
    answer_artifacts,
    is_progress_role,
    join_lines,
)
from trunkline.cli.part_text import render_part
from trunkline.core.json_values import has_member
from trunkline.core.parts import join_texts
from trunkline.core.task_states import TaskState
from trunkline.v1 import part_pb2

# The marks around a plan.
_PLAN_BRACKETS: Final = "⟦⟧"
# The metadata keys of data parts with approvals, and with questions of tools. A text part says the
# same.
_QUESTION_KEYS: Final = ("trunkline/approvals", "trunkline/input-requests")


class AnswerPrinter:
    """Prints the events of one turn."""

    def __init__(
        self,
        *,
        write: Callable[[str], object],
        show_progress: Callable[[str], object] = lambda _: None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """Print the answer with `write`, and progress with `show_progress` between its lines.

        `close` is called when nothing more is printed.
        """
        self.task_id = ""
        self.context_id = ""
        self.state: TaskState | None = None
        """The state of the task, or None before the first status."""
        self._pieces: list[str] = []
        self._write = write
        self._show_progress = show_progress
        self._close = close

    async def emit(self, event: ClientEvent) -> None:
        """Print an event of the turn."""
        match event:
            case StatusChange():
                self.task_id, self.context_id = event.task_id, event.context_id
                self.state = event.state
                if event.state is TaskState.WORKING:
                    self._note(event.text)
            case ArtifactChange() if is_progress_role(event.role):
                # Progress may arrive in pieces. Only a complete text is shown.
                if event.is_complete:
                    text = join_texts(event.artifact.parts)
                    self._note(text.strip(_PLAN_BRACKETS).rstrip())
            case TextChunk(replaces=True):
                self._complete(event.text)
            # Text of no artifact is the rest of the answer, which `finish` prints.
            case TextChunk(artifact_id=str(artifact_id)) if artifact_id:
                self._print(event.text)

    def finish(self, answer: ClientAnswer) -> None:
        """Print the rest of the answer and end the line."""
        self.task_id = answer.task_id
        self.context_id = answer.context_id
        self.state = answer.state
        self._complete(render_answer(answer))
        self.break_off()

    def break_off(self) -> None:
        """End the line, as after the last text of an abandoned turn."""
        if not self._is_at_line_start:
            self._print("\n")

    def close(self) -> None:
        """Stop showing progress, also if the turn failed."""
        self._close()

    @property
    def printed(self) -> str:
        """The printed text."""
        return "".join(self._pieces)

    @property
    def _is_at_line_start(self) -> bool:
        return not self._pieces or self._pieces[-1].endswith("\n")

    def _note(self, text: str) -> None:
        # In the middle of a line it would look like a part of the answer.
        if text and self._is_at_line_start:
            self._show_progress(text)

    def _print(self, text: str) -> None:
        self._write(text)
        self._pieces.append(text)

    def _complete(self, text: str) -> None:
        """Print what an answer has beyond the printed text, no line twice."""
        before = self.printed
        if text.startswith(before):
            if rest := text.removeprefix(before):
                self._print(rest)
            return
        lines = text.splitlines(keepends=True)
        if not "".join(lines).strip():
            return
        self.break_off()
        printed = Counter(before.splitlines())
        follows_printed = True
        for line in lines:
            content = line.rstrip("\n")
            if content.strip() and printed[content]:
                printed[content] -= 1
                follows_printed = True
            elif content.strip() or not follows_printed:
                self._print(line)
                follows_printed = False


def render_answer(answer: ClientAnswer) -> str:
    """Return the text of an answer; of a completed task without any, the text of its status."""
    return _artifact_text(answer) or (
        status_text(answer) if answer.state is TaskState.COMPLETED else ""
    )


def render_end(answer: ClientAnswer) -> str:
    """Return a question or the reason of a failure: the status, unless it is the answer."""
    is_answer = answer.state is TaskState.COMPLETED and not _artifact_text(answer)
    return "" if is_answer else status_text(answer)


def status_text(answer: ClientAnswer) -> str:
    """Return the parts of the status, a line each, such as a question and its approvals."""
    parts = answer.task.status.message.parts
    return join_lines(render_part(part) for part in parts if not _repeats_question(part))


def find_files(answer: ClientAnswer) -> list[part_pb2.Part]:
    """Return the file parts of an answer."""
    return [part for part in _parts(answer) if part.HasField("raw") or part.HasField("url")]


def _artifact_text(answer: ClientAnswer) -> str:
    text = join_lines(join_texts(each.parts) for each in answer_artifacts(answer.artifacts))
    others = (render_part(part) for part in _parts(answer) if not part.HasField("text"))
    return join_lines([text, *others])


def _parts(answer: ClientAnswer) -> Iterable[part_pb2.Part]:
    return [part for each in answer_artifacts(answer.artifacts) for part in each.parts]


def _repeats_question(part: part_pb2.Part) -> bool:
    return part.HasField("data") and any(has_member(part.metadata, key) for key in _QUESTION_KEYS)
