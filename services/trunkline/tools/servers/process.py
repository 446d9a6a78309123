"""Runs an MCP server as a process on stdio: spans flushed, and a clean end on signals."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType

from trunkline.tools.servers.otel import start_tracing


def run_on_stdio(serve: Callable[[], Coroutine[None, None, None]], *, service_name: str) -> None:
    """Run `serve` until its client closes stdin, or SIGTERM or SIGINT comes; flush the spans."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    flush = start_tracing(service_name)
    _leave_on_signals(flush)
    try:
        asyncio.run(serve())
    finally:
        flush()


def _leave_on_signals(flush: Callable[[], None]) -> None:
    def leave(_signal: int, _frame: FrameType | None) -> None:
        flush()
        # A thread of the mcp library waits on stdin and would hold up an orderly exit for ever.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
