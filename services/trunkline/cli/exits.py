"""Ends a command: with an exit code, and one line about an error."""

import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import IntEnum
from typing import Any

import typer

from trunkline.errors import ConfigurationError, PeerError, TrunklineError
from trunkline.settings import load_settings

logger = logging.getLogger(__name__)


class ExitCode(IntEnum):
    """Exit codes."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INPUT_REQUIRED = 3
    UNREACHABLE = 4
    CANCELED = 130


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run a command's coroutine and exit as `finish` does."""
    import asyncio

    finish(lambda: asyncio.run(work))


def finish(work: Callable[[], int]) -> None:
    """Run a command's work and exit with its code, without a traceback."""
    import asyncio

    try:
        code = work()
        sys.stdout.flush()
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = ExitCode.CANCELED
    except BrokenPipeError:
        # The reader closed the pipe. Without this, the interpreter would flush and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.FAILED
    # Defects also end with one line for people. The log has the traceback.
    except Exception as error:  # noqa: BLE001
        code = complain(error)
    raise typer.Exit(code)


def complain(error: Exception) -> ExitCode:
    """Print an error as one line to stderr; return the exit code for it."""
    reason = _find_cause(error)
    if isinstance(reason, TrunklineError):
        text = " ".join(str(reason).split())
        if reason.hint:
            text += f"; {reason.hint}"
    else:
        # Only the system's own text: other texts may contain user content.
        cause = f" ({reason.strerror})" if isinstance(reason, OSError) and reason.strerror else ""
        text = f"unexpected {type(reason).__name__}{cause}; TRUNKLINE_LOG_LEVEL=debug shows where"
        _log(error)
    print(f"error: {text}", file=sys.stderr, flush=True)
    return ExitCode.UNREACHABLE if isinstance(reason, PeerError) else ExitCode.FAILED


def _log(error: Exception) -> None:
    if not logging.root.handlers:
        from trunkline.logs import configure_logging

        # Invalid settings are reported by commands that need them.
        with suppress(ConfigurationError):
            settings = load_settings()
            configure_logging(level=settings.log_level, log_format=settings.log_format)
    logger.debug("command.failed", exc_info=error)


def _find_cause(error: Exception) -> Exception:
    """Return the cause of an error: in a group, the first mesh error or else the first one."""
    if not isinstance(error, ExceptionGroup):
        return error
    reasons = [_find_cause(inner) for inner in error.exceptions]
    return next((reason for reason in reasons if isinstance(reason, TrunklineError)), reasons[0])
