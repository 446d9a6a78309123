"""How a command ends: its exit code, and the one line that says what went wrong."""

import sys
from collections.abc import Coroutine
from enum import IntEnum
from typing import Any

import typer

from trunkline.errors import PeerError, TrunklineError


class Exit(IntEnum):
    """Exit codes. A wrong option is 2, by the option parser."""

    OK = 0
    FAILED = 1
    INPUT_REQUIRED = 3
    UNREACHABLE = 4
    CANCELED = 130


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run a command's work to its end and leave with its exit code; never with a traceback."""
    import asyncio

    try:
        code = asyncio.run(work)
    except TrunklineError as error:
        code = complain(error)
    except KeyboardInterrupt:
        code = Exit.CANCELED
    raise typer.Exit(code)


def complain(error: TrunklineError) -> Exit:
    """Print an error as one line to stderr; return the exit code that it calls for."""
    text = " ".join(str(error).split())
    print(f"error: {text}", file=sys.stderr, flush=True)
    return Exit.UNREACHABLE if isinstance(error, PeerError) else Exit.FAILED
