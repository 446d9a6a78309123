"""Ends the program of a fork without finalizing the interpreter.

Finalization writes to nearly every object, so it copies all memory that a fork shares with its
server: 90 ms of processor time, where the fork itself takes 6 ms. Threads are joined and functions
of `atexit` are called as usual.
"""

import atexit
import os
import sys
from collections.abc import Callable

_FLUSH_FAILED = 120
_codes: list[int] = []


@atexit.register
def _exit() -> None:
    """End the process. This is the last function of `atexit`, because it is the first one."""
    if not _codes:
        return
    code = _codes[0]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = _FLUSH_FAILED
    os._exit(code)


def run_and_exit(program: Callable[[], None]) -> None:
    """Run a program of a fork; exit at once after it with its code.

    An exception other than SystemExit leaves the end of the process to the interpreter.
    """
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _codes.append((end.code or 0) & 0xFF)
        raise
    _codes.append(0)
