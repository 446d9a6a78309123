"""Reads files in a worker process with limits on memory and time.

A hostile file may break the process that parses it, so it is never parsed in the calling process.
The worker reads lines {"path", "media_type"} on stdin, and answers each on stdout with {"title",
"page_count", "sections"} or {"problem"}.
"""

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from trunkline_agents.research.documents.formats import (
    FILE_LIMIT_BYTES,
    SECTION_LIMIT,
    TEXT_LIMIT_CHARS,
    DocumentText,
    FormatReader,
    UnreadableFileError,
    clean_text,
    read_markdown,
    read_pdf,
    read_text,
)
from trunkline_agents.research.documents.html import read_html
from trunkline_agents.research.documents.passages import Section

TIME_LIMIT_S = 60.0
"""The time limit for reading one file."""
MEMORY_LIMIT_BYTES = 2 * 1024**3

# -P: the current folder is not searched for modules.
_COMMAND = (sys.executable, "-P", "-m", "trunkline_agents.research.documents.reader")
# A hostile file that takes over the worker gets only these variables, so our secrets stay here. The
# last four variables set the encoding of file names.
_ENVIRONMENT = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT"),
    *("PYTHONUTF8", "LANG", "LC_ALL", "LC_CTYPE"),
)
_READERS: dict[str, FormatReader] = {
    "text/markdown": read_markdown,
    "text/plain": read_text,
    "text/html": read_html,
    "application/pdf": read_pdf,
}


class DocumentReader:
    """Reads one file after the other. If a file breaks the worker, a new one reads the next."""

    def __init__(self, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._process: subprocess.Popen[str] | None = None

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, or None before the start."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop()

    def read(self, path: Path, media_type: str) -> DocumentText:
        """Return the text of a file.

        Raises:
            UnreadableFileError: the file has no text, or can't be read within the limits.
        """
        request = json.dumps({"path": str(path), "media_type": media_type})
        line, is_late = self._exchange(request)
        if not line:
            raise UnreadableFileError(
                "reading it takes too long" if is_late else "reading it fails"
            )
        reply: dict[str, Any] = json.loads(line)
        if "problem" in reply:
            raise UnreadableFileError(reply["problem"])
        sections = [
            Section(section["text"], tuple(section["headings"]), section["page"], section["line"])
            for section in reply["sections"]
        ]
        return DocumentText(reply["title"], sections, reply["page_count"])

    def _exchange(self, request: str) -> tuple[str, bool]:
        """Return the reply, or "" if the worker died, and whether the time limit has passed."""
        process = self._start()
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

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            self._process = subprocess.Popen(
                _COMMAND,
                env=environment,
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
            # Leaving the block flushes stdin, which fails if the worker has closed it.
            with suppress(BrokenPipeError), process:
                pass
            process.wait()


def run_worker() -> None:
    """Read files until stdin closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        reply = _answer(Path(request["path"]), request["media_type"])
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def _answer(path: Path, media_type: str) -> dict[str, object]:
    try:
        return asdict(_read(path, media_type))
    except UnreadableFileError as error:
        return {"problem": str(error)}
    except OSError as error:
        return {"problem": error.strerror or "it can't be opened"}
    except MemoryError:
        return {"problem": "reading it takes too much memory"}
    except RecursionError:
        return {"problem": "it is nested too deeply"}
    # Parsers raise anything on a broken file. The error's text may hold content, its name doesn't.
    except Exception as error:  # noqa: BLE001
        return {"problem": f"it is broken ({type(error).__name__})"}


def _read(path: Path, media_type: str) -> DocumentText:
    # Opening a pipe would block until another process writes into it.
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableFileError("it is no file")
    with path.open("rb") as file:
        content = file.read(FILE_LIMIT_BYTES + 1)
    if len(content) > FILE_LIMIT_BYTES:
        raise UnreadableFileError(f"it is larger than {FILE_LIMIT_BYTES // 1024**2} MiB")
    extract = _READERS[media_type](content)
    cleaned = [replace(section, text=clean_text(section.text)) for section in extract.sections]
    text = replace(extract, sections=[section for section in cleaned if section.text.strip()])
    if sum(len(section.text) for section in text.sections) > TEXT_LIMIT_CHARS:
        raise UnreadableFileError("it holds too much text")
    if len(text.sections) > SECTION_LIMIT:
        raise UnreadableFileError("it has too many sections")
    if not text.sections:
        raise UnreadableFileError("it holds no text")
    return text


if __name__ == "__main__":
    run_worker()
