"""Exit codes of commands, and the line that reports an error."""

import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any

import typer

from trunkline.errors import (
    ConfigurationError,
    InvalidArgumentError,
    LimitExceededError,
    OverloadedError,
    PeerError,
    TreeLimitError,
    TrunklineError,
    find_cause,
)

logger = logging.getLogger(__name__)

# The arguments whose form commands check. A `NAME` may be right, and nothing has it.
_ARGUMENTS = frozenset({"JSON", "KIND", "QUESTION", "TIME", "URL"})


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    """The arguments are wrong."""
    INPUT_REQUIRED = 3
    """The task waits for another message."""
    UNREACHABLE = 4
    """The mesh, or a host of it, did not answer or failed."""
    PARTIAL = 5
    """The task completed, and a part of the answer is missing."""
    LIMITED = 6
    """A limit or a budget refused the request, or a queue is full."""
    CANCELED = 130
    """Ctrl-C, or the task was canceled. 128 + SIGINT, as in shells."""


def run(work: Coroutine[Any, Any, int | None]) -> None:
    """Run a command's coroutine and raise `typer.Exit` as `finish` does."""
    import asyncio

    finish(lambda: asyncio.run(work))


def finish(work: Callable[[], int | None]) -> None:
    """Run a command's function.

    Raises:
        typer.Exit: always, with the returned code, or 0 for None, or the code of an error, which
            is printed.
    """
    import asyncio

    try:
        code = work() or ExitCode.OK
        sys.stdout.flush()
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = ExitCode.CANCELED
    # An unexpected error is also one line. The log has its traceback.
    except Exception as error:  # noqa: BLE001
        if isinstance(find_cause(error), BrokenPipeError):
            discard_stdout()
            code = ExitCode.FAILED
        else:
            code = print_error(error)
    raise typer.Exit(code)


def discard_stdout() -> None:
    """Discard what stdout still gets, after its reader has closed the pipe.

    The interpreter flushes stdout at its exit, which would fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(error: Exception) -> ExitCode:
    """Print an error as one line to stderr; return the exit code for it."""
    cause = find_cause(error)
    if isinstance(cause, TrunklineError):
        text = " ".join(str(cause).split())
        if cause.hint:
            text += f"; {cause.hint}"
        for note in getattr(cause, "__notes__", ()):
            text += f"; {note}"
    else:
        # Only the operating system's text. The texts of other errors may contain user content.
        details = f" ({cause.strerror})" if isinstance(cause, OSError) and cause.strerror else ""
        text = f"unexpected {type(cause).__name__}{details}; TRUNKLINE_LOG_LEVEL=debug shows where"
        _log(error)
    print(f"error: {text}", file=sys.stderr, flush=True)
    if isinstance(cause, LimitExceededError | OverloadedError | TreeLimitError):
        return ExitCode.LIMITED
    if _is_usage_error(cause):
        return ExitCode.USAGE
    return ExitCode.UNREACHABLE if isinstance(cause, PeerError) else ExitCode.FAILED


def _is_usage_error(error: Exception) -> bool:
    """Return True for the error of an option or argument, such as `--since` or `KIND`.

    What a server refused may come from a variable too: `--api-key or TRUNKLINE_API_KEY`.
    """
    match error:
        case InvalidArgumentError(field=name) | ConfigurationError(where=name):
            return (name.startswith("--") and " or " not in name) or name in _ARGUMENTS
    return False


def _log(error: Exception) -> None:
    if not logging.root.handlers:
        from trunkline.core.settings import load_settings
        from trunkline.observe.logs import configure_logging

        # Invalid settings are reported by commands that need them.
        with suppress(ConfigurationError):
            settings = load_settings(report_ignored=lambda _: None)
            configure_logging(level=settings.log_level, log_format=settings.log_format)
    logger.debug("command.failed", exc_info=error)
