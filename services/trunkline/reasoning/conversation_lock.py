"""A lock for conversations: their turns run one at a time, children of one parent together."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from trunkline.tasks.turn_runtime import TurnRuntime

logger = logging.getLogger(__name__)

# A turn that holds the lock for longer no longer blocks the others.
WAIT_LIMIT_S: Final = 300.0
_WAITS: Final = "Waiting for what was asked before this in the conversation…"


@dataclass(slots=True)
class _Line:
    """The lock of one conversation: its holders, and a queue of waiting turns."""

    parent: str = ""
    """The parent whose tasks hold the lock. They may run together, because each has its own
    question."""
    at_work: int = 0
    waiting: deque[tuple[str, asyncio.Future[None]]] = field(default_factory=deque)


_lines: dict[tuple[str, str, str], _Line] = {}


@asynccontextmanager
async def lock_conversation(task: TurnRuntime) -> AsyncIterator[None]:
    """Hold the conversation of a task for a turn, in order of arrival.

    A task that waits for its user does not hold the lock.
    """
    key = (task.agent, task.context_id, task.account)
    line = _lines.setdefault(key, _Line())
    parent = task.snapshot.parent.task_id or task.id
    try:
        if line.at_work and line.parent != parent:
            await task.working(_WAITS)
            await _wait(line, parent, task.id)
        else:
            line.parent = parent
            line.at_work += 1
        try:
            yield
        finally:
            line.at_work -= 1
            _pass_on(line)
    finally:
        if not line.at_work and not line.waiting and _lines.get(key) is line:
            del _lines[key]


async def _wait(line: _Line, parent: str, task_id: str) -> None:
    """Wait for the lock. The task that grants it increments the number of holders."""
    place = asyncio.get_running_loop().create_future()
    entry = (parent, place)
    line.waiting.append(entry)
    try:
        async with asyncio.timeout(WAIT_LIMIT_S):
            await asyncio.shield(place)
    except BaseException as error:
        with contextlib.suppress(ValueError):
            line.waiting.remove(entry)
        if isinstance(error, TimeoutError):
            logger.warning("conversation.not_waited_for", extra={"task_id": task_id})
            if not place.done():
                line.at_work += 1
            return
        if place.done():
            line.at_work -= 1
            _pass_on(line)
        raise


def _pass_on(line: _Line) -> None:
    """Grant the lock to the next turn and to all waiting turns of the same parent."""
    if line.at_work or not line.waiting:
        return
    line.parent = line.waiting[0][0]
    for entry in [one for one in line.waiting if one[0] == line.parent]:
        line.waiting.remove(entry)
        line.at_work += 1
        entry[1].set_result(None)
