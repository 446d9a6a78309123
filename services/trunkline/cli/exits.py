"""How a command ends: its exit code, and the one line that says what went wrong."""

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
    """Run a command's asynchronous work and leave as `finish` does."""
    import asyncio

    finish(lambda: asyncio.run(work))


def finish(work: Callable[[], int]) -> None:
    """Do a command's work to its end and leave with its exit code; never with a traceback."""
    import asyncio

    try:
        code = work()
        sys.stdout.flush()
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = ExitCode.CANCELED
    except BrokenPipeError:
        # Whoever read the output has seen enough. The interpreter would flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.FAILED
    # The last line of defence: a defect, too, ends in a line for people; the log has the rest.
    except Exception as error:  # noqa: BLE001
        code = complain(error)
    raise typer.Exit(code)


def complain(error: Exception) -> ExitCode:
    """Print an error as one line to stderr; return the exit code that it calls for."""
    reason = _reason(error)
    if isinstance(reason, TrunklineError):
        text = " ".join(str(reason).split())
        if reason.hint:
            text += f"; {reason.hint}"
    else:
        # Only what the system says: other texts may hold content.
        said = f" ({reason.strerror})" if isinstance(reason, OSError) and reason.strerror else ""
        text = f"unexpected {type(reason).__name__}{said}; TRUNKLINE_LOG_LEVEL=debug shows where"
        _log(error)
    print(f"error: {text}", file=sys.stderr, flush=True)
    return ExitCode.UNREACHABLE if isinstance(reason, PeerError) else ExitCode.FAILED


def _log(error: Exception) -> None:
    if not logging.root.handlers:
        from trunkline.logs import configure_logging

        # Wrong settings are the business of the command that needs them.
        with suppress(ConfigurationError):
            settings = load_settings()
            configure_logging(level=settings.log_level, log_format=settings.log_format)
    logger.debug("command.failed", exc_info=error)


def _reason(error: Exception) -> Exception:
    """Return what lies behind an error: of a group the mesh error that is in it, else its first."""
    if not isinstance(error, ExceptionGroup):
        return error
    reasons = [_reason(inner) for inner in error.exceptions]
    return next((reason for reason in reasons if isinstance(reason, TrunklineError)), reasons[0])
