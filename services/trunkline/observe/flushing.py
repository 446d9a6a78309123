"""Ends exports of a process within a short time, even if a collector is gone."""

import time
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Final

_FLUSH_TIMEOUT_S: Final = 3.0


def finish_exports(actions: Iterable[Callable[[], object]]) -> None:
    """Run actions that export the rest, at the same time; return after three seconds at most.

    They run in threads, because an exporter whose collector is gone blocks for up to half a minute.
    """
    threads = [Thread(target=action, daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _FLUSH_TIMEOUT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
