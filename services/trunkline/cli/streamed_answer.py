"""Extracts the answer from the stream of a turn, and prints it while it arrives.

The answer is the text of a task's artifacts, except those that report progress. Artifacts are
printed one after the other, each while it grows, in the order of the plan's steps. Artifacts
without a step come first, in the order of their first pieces. The text of an artifact is buffered
until the artifacts before it are complete.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# Artifact names that the bridge uses for progress, and the marks around a plan.
_PLAN_BRACKETS = "⟦⟧"
_PROGRESS = ("execution_plan_", "tool_notification_", "current_result")
# The name of the artifact with the merged answers of all steps. It replaces the other artifacts.
_MERGED_ANSWER = "partial_result"
# The metadata key of an artifact's role, and the roles of progress. Servers other than Trunkline
# have no roles, but may have the names above.
_ROLE_KEY = "trunkline/role"
_PROGRESS_ROLES = frozenset(("plan", "notice"))
# The key of the outcome in the metadata of a task and its last status.
_OUTCOME_KEY = "trunkline/outcome"
# The metadata key of the agents that answered, in the artifact with the merged answers.
_AGENTS_KEY = "trunkline/agents"
# The metadata keys of data parts with approvals, and with questions of tools. A text part says the
# same.
_QUESTION_KEYS = frozenset(("trunkline/approvals", "trunkline/input-requests"))
# The metadata key of an artifact's step in the plan: `step-1`, `step-2`, ….
_STEP_KEY = "trunkline/step"


class StreamedAnswer:
    """The answer of one turn, built from the stream's results in order."""

    def __init__(
        self,
        *,
        write: Callable[[str], object],
        print_progress: Callable[[str], object] = lambda text: None,
        continues: bool = False,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """Print the answer with `write`, and progress with `print_progress` between its lines.

        `close` is called once nothing more is printed.

        With `continues` the turn belongs to an earlier task, whose artifacts are not printed again.
        """
        self.task_id = ""
        self.context_id = ""
        self.state = ""
        """The state in wire form, or "" before the first status."""
        self.status_text = ""
        """The text of the status message, or of the direct reply."""
        self.outcome = ""
        """The task's outcome: complete, partial or failed; "" if the server does not say it."""
        self.agents: list[str] = []
        """The agents that answered, if a supervisor named them."""
        self._out = _Printer(write)
        self._print_progress = print_progress
        self._close = close
        self._skips_earlier = continues
        self._artifacts: dict[str, _Artifact] = {}
        self._progress: set[str] = set()
        # The artifacts in the order of printing, and the index of the first incomplete one.
        self._order: list[_Artifact] = []
        self._current = 0
        self._last_step = 0
        self._merged: _Artifact | None = None

    @property
    def text(self) -> str:
        """The text of the artifacts; without any, the status of a task that completed."""
        return self.artifact_text or (self.status_text if self.is_completed else "")

    @property
    def end_text(self) -> str:
        """A question, or the reason of a failure: the status, unless it is the answer."""
        return "" if self.is_completed and not self.artifact_text else self.status_text

    @property
    def artifact_text(self) -> str:
        """The text of the artifacts."""
        if self._merged is not None:
            return self._merged.text
        return _join_lines(artifact.text for artifact in self._order)

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """The file parts of the answer, in order."""
        artifacts = self._order if self._merged is None else [self._merged]
        return [part for artifact in artifacts for part in artifact.files]

    @property
    def is_completed(self) -> bool:
        """True if the task completed or the agent replied directly."""
        return self.state in {"", "TASK_STATE_COMPLETED"}

    def apply(self, result: Mapping[str, Any]) -> None:
        """Add one A2A stream response, and print what it completes."""
        if "task" in result:
            self._handle_task(result["task"])
        elif "artifactUpdate" in result:
            update = result["artifactUpdate"]
            appends, is_last = update.get("append", False), update.get("lastChunk", False)
            self._handle_artifact(update["artifact"], appends=appends, is_last=is_last)
            self._show()
        elif "statusUpdate" in result:
            self._handle_ids(result["statusUpdate"])
            self._handle_outcome(result["statusUpdate"])
            self._handle_status(result["statusUpdate"]["status"])
        elif "message" in result:
            self._handle_ids(result["message"])
            self.status_text = render_parts(result["message"].get("parts", ()))

    def finish(self) -> None:
        """Print the rest of the answer and end the line. The turn must have ended."""
        if self._merged is not None:
            # It has the texts that were not printed yet, in its own order.
            self._out.replace_with(self._merged.text, [artifact.shown for artifact in self._order])
        else:
            for artifact in self._order:
                artifact.complete()
                self._show_one(artifact)
        if self.is_completed and not self._out.text:
            self._out.write(self.status_text)
        self._out.end_line()

    def close(self) -> None:
        """Print buffered text and stop showing progress, also if the turn failed."""
        self._close()

    def break_off(self) -> None:
        """End the line of an abandoned turn. Buffered text is not printed."""
        self._out.end_line()

    def _handle_task(self, task: Mapping[str, Any]) -> None:
        self.task_id = task.get("id", "")
        self.context_id = task.get("contextId", "")
        self._handle_outcome(task)
        self._handle_status(task.get("status", {}))
        for artifact in task.get("artifacts", ()):
            self._handle_artifact(artifact, appends=False, is_last=False)
        if self._skips_earlier:
            self._artifacts.clear()
            self._order.clear()
            self._merged = None
            self.agents = []
            self._skips_earlier = False
        self._show()

    def _handle_ids(self, event: Mapping[str, Any]) -> None:
        self.task_id = event.get("taskId") or self.task_id
        self.context_id = event.get("contextId") or self.context_id

    def _handle_outcome(self, holder: Mapping[str, Any]) -> None:
        self.outcome = str((holder.get("metadata") or {}).get(_OUTCOME_KEY, ""))

    def _handle_status(self, status: Mapping[str, Any]) -> None:
        self.state = status.get("state", "")
        # Its parts are separate texts, such as a question and the approvals beside it.
        parts = status.get("message", {}).get("parts", ())
        self.status_text = _join_lines(render_parts([part]) for part in parts)
        if self.status_text and self.state == "TASK_STATE_WORKING":
            self._show_progress(self.status_text)

    def _handle_artifact(self, update: Mapping[str, Any], *, appends: bool, is_last: bool) -> None:
        key, name, parts = update["artifactId"], update.get("name", ""), update.get("parts", ())
        if name == _MERGED_ANSWER:
            if self._merged is None or not appends:
                self._merged = _Artifact(step=0)
                self.agents = list(_metadata(update).get(_AGENTS_KEY, ()))
            self._merged.add(parts)
            return
        if _metadata(update).get(_ROLE_KEY) in _PROGRESS_ROLES or name.startswith(_PROGRESS):
            # Progress may arrive in pieces. Only a complete text is shown.
            if is_last and (text := render_parts(parts).strip(_PLAN_BRACKETS).rstrip()):
                self._show_progress(text)
            self._progress.add(key)
        if key in self._progress:
            return
        artifact = self._artifacts.get(key)
        if artifact is None:
            artifact = self._artifacts[key] = _Artifact(step=_parse_step(update))
            self._order.append(artifact)
            # Complete artifacts stay first. The sort is stable: equal steps keep their order.
            self._order[self._current :] = sorted(
                self._order[self._current :], key=lambda artifact: artifact.step
            )
        if appends:
            artifact.add(parts)
        else:
            artifact.replace(parts)
        if is_last:
            artifact.complete()

    def _show_progress(self, text: str) -> None:
        # In the middle of a line it would look like a part of the answer.
        if self._out.is_at_line_start:
            self._print_progress(text)

    def _show(self) -> None:
        """Print the current artifact, and the next ones if it is complete."""
        while self._current < len(self._order):
            artifact = self._order[self._current]
            # An earlier step has not sent its first piece yet.
            if artifact.step > self._last_step + 1:
                break
            self._show_one(artifact)
            if not artifact.is_complete:
                break
            self._current += 1
            self._last_step = max(self._last_step, artifact.step)

    def _show_one(self, artifact: "_Artifact") -> None:
        starts_line = not artifact.has_output or artifact.starts_over
        if text := artifact.take_unwritten():
            if starts_line:
                self._out.end_line()
            self._out.write(text)


class _Artifact:
    """The received text of an artifact, and the part that was printed."""

    def __init__(self, *, step: int) -> None:
        self.step = step
        """Its step in the plan, or 0 without a plan."""
        self.files: list[Mapping[str, Any]] = []
        """Its file parts."""
        self.is_complete = False
        self.has_output = False
        """True once some of its text was printed."""
        self.starts_over = False
        """True if printed text was wrong, so that the text is printed again on a new line."""
        self.ends_line = True
        """True if the text is empty or ends with a line break."""
        self._written: list[str] = []
        self._unwritten: list[str] = []
        # Printed text after the end of a shorter replacement. The next pieces should repeat it.
        self._expected = ""

    @property
    def text(self) -> str:
        return "".join([*self._written, *self._unwritten])

    @property
    def shown(self) -> str:
        """The printed text."""
        return "".join(self._written) + self._expected

    def add(self, parts: Iterable[Mapping[str, Any]]) -> None:
        self.files += _find_files(parts)
        self._append(render_parts(parts, at_line_start=self.ends_line))

    def _append(self, text: str) -> None:
        if not text:
            return
        self.ends_line = text.endswith("\n")
        if self._expected:
            size = min(len(text), len(self._expected))
            if text[:size] != self._expected[:size]:
                self._start_over(self.shown, self.text + text)
                return
            self._written.append(text[:size])
            self._expected = self._expected[size:]
            text = text[size:]
        if text:
            self._unwritten.append(text)

    def replace(self, parts: Iterable[Mapping[str, Any]]) -> None:
        self.files = _find_files(parts)
        text = render_parts(parts)
        shown = self.shown
        self._written, self._unwritten, self._expected = [], [], ""
        if shown.startswith(text):
            self._written, self._expected = [text], shown[len(text) :]
        elif text.startswith(shown):
            self._written, self._unwritten = [shown], [text[len(shown) :]]
        else:
            self._start_over(shown, text)
        self.ends_line = not text or text.endswith("\n")

    def complete(self) -> None:
        if self._expected and not self._expected.startswith("\n"):
            self._start_over(self.shown, self.text)
        self.is_complete = True

    def take_unwritten(self) -> str:
        text = "".join(self._unwritten)
        self._written += self._unwritten
        self._unwritten = []
        self.has_output = self.has_output or bool(text)
        self.starts_over = False
        return text

    def _start_over(self, shown: str, text: str) -> None:
        """Print `text` again, without the first lines that the printed text has as well."""
        size = 0
        for line in text.splitlines(keepends=True):
            if not (line.endswith("\n") and shown.startswith(line, size)):
                break
            size += len(line)
        self._written, self._unwritten = [text[:size]], [text[size:]]
        self._expected, self.starts_over = "", True


class _Printer:
    """The printed text, which can't be withdrawn."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        if text:
            self._write(text)
            self._pieces.append(text)

    def replace_with(self, text: str, artifacts: Iterable[str]) -> None:
        """Print what `text` has beyond the printed text, no line twice.

        `artifacts` are the printed texts of the artifacts. If none of them is in `text`, it is
        another text: print all of it on a new line, unless the printed text ends with it.
        """
        printed = self.text
        if text.startswith(printed):
            self.write(text[len(printed) :])
            return
        if f"\n{printed.rstrip()}".endswith(f"\n{text.rstrip()}"):
            return
        self.end_line()
        unprinted_lines = _count_lines(text)
        printed_lines: Counter[str] = Counter()
        for artifact in artifacts:
            lines = _count_lines(artifact)
            if lines <= unprinted_lines:
                unprinted_lines -= lines
                printed_lines += lines
        if not printed_lines:
            self.write(text)
            return
        follows_printed = True
        for line in text.splitlines():
            if printed_lines[line]:
                printed_lines[line] -= 1
                follows_printed = True
            elif line.strip() or not follows_printed:
                self.write(f"{line}\n")
                follows_printed = False

    @property
    def is_at_line_start(self) -> bool:
        return not self._pieces or self._pieces[-1].endswith("\n")

    def end_line(self) -> None:
        if not self.is_at_line_start:
            self.write("\n")


def _count_lines(text: str) -> Counter[str]:
    """Count the lines of a text that are not blank."""
    return Counter(line for line in text.splitlines() if line.strip())


def render_parts(parts: Iterable[Mapping[str, Any]], *, at_line_start: bool = True) -> str:
    """Render parts as text. Files and data get a line each. Data of questions is left out."""
    text = ""
    for part in parts:
        if "data" in part and not _QUESTION_KEYS.isdisjoint(part.get("metadata") or {}):
            continue
        if "text" in part:
            text += part["text"]
            continue
        if not (text.endswith("\n") if text else at_line_start):
            text += "\n"
        text += _render_part(part) + "\n"
    return text


def _metadata(artifact: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = artifact.get("metadata") or {}
    return metadata


def _find_files(parts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [part for part in parts if "raw" in part or "url" in part]


def _parse_step(artifact: Mapping[str, Any]) -> int:
    """Return the number of the plan's step, or 0."""
    number = str(_metadata(artifact).get(_STEP_KEY, "")).rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def _join_lines(texts: Iterable[str]) -> str:
    """Join texts, with a line break between them."""
    joined = ""
    for text in texts:
        joined += "\n" if joined and text and not joined.endswith("\n") else ""
        joined += text
    return joined


def _render_part(part: Mapping[str, Any]) -> str:
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False)
    name = part.get("filename") or part.get("mediaType") or "unnamed"
    if "url" in part:
        return f"[file {name} at {part['url']}]"
    raw = part.get("raw", "").rstrip("=")
    return f"[file {name}, {len(raw) * 3 // 4} bytes]"
