"""Reads files in a process of its own, with limits on memory and time."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trunkline_agents.research.documents.formats import DocumentText, UnreadableFileError
from trunkline_agents.research.documents.passages import Section

TIME_LIMIT_S = 60.0
"""Longest that reading one file may take."""


class DocumentReader:
    """Reads one file after the other. A file that breaks the process costs only itself."""

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def read(self, path: Path, media_type: str) -> DocumentText:
        """Return the text of a file.

        Raises:
            Unreadable: there is none to be had.
        """
        request = json.dumps({"path": str(path), "media_type": media_type})
        line, is_late = self._ask(request)
        if not line:
            raise UnreadableFileError(
                "reading it takes too long" if is_late else "reading it fails"
            )
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise UnreadableFileError(answer["problem"])
        sections = [
            Section(one["text"], tuple(one["headings"]), one["page"], one["line"])
            for one in answer["sections"]
        ]
        return DocumentText(answer["title"], sections, answer["page_count"])

    def _ask(self, request: str) -> tuple[str, bool]:
        """Return the answer, empty if the process died of it; and whether it was too late."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(self._time_limit_s, end)
        timer.start()
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
            timer.join()
        if not line.endswith("\n"):
            self._stop()
            return "", is_late.is_set()
        if is_late.is_set():
            self._stop()
        return line, False

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trunkline_agents.research.documents.reader_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                errors="surrogateescape",
            )
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # What was not written yet can't be written any more.
            with suppress(BrokenPipeError), process:
                pass
            process.wait()
