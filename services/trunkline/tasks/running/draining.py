"""Lets what runs end before a host leaves, and ends what doesn't."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from trunkline.tasks.lifecycle import INTERRUPTED, State
from trunkline.tasks.running.ending import Endings
from trunkline.tasks.running.runs import Run, Runs
from trunkline.tasks.turn.context import TaskContext

_LEFT_OVER: Final = "the host shut down; send it again"


async def drain(
    runs: Runs, endings: Endings, *, grace_s: float, cancel_grace_s: float, lost: asyncio.Event
) -> None:
    """Give what runs `grace_s` to end, then fail what is left, unless the journal is `lost`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while left := runs.all():
                await _all_done(left)
    left = runs.all()
    for run in left:
        if run.context is not None and run.context.state in INTERRUPTED:
            run.stop()  # The question is out, and can still be answered.
        elif not lost.is_set():
            reason = _left_over(run.context)
            endings.begin(run, State.TASK_STATE_FAILED, reason, grace_s=cancel_grace_s)
    with suppress(TimeoutError):
        async with asyncio.timeout(cancel_grace_s + 1):
            await _all_done(left)


async def _all_done(runs: Sequence[Run]) -> None:
    for run in runs:
        await run.done.wait()


def _left_over(context: TaskContext | None) -> str:
    """Say that the host shut down, and what to do then: what was approved may have been done."""
    approved = context.approved_calls() if context is not None else ()
    if not approved:
        return _LEFT_OVER
    return f"the host shut down while it called {', '.join(approved)}: see whether that was done"
