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

# A turn that has waited this long runs without waiting further.
WAIT_LIMIT_S: Final = 300.0
_WAIT_TEXT: Final = "Waiting for earlier questions of this conversation…"


@dataclass(slots=True)
class _LockState:
    """The lock of one conversation: its holders, and a queue of waiting turns."""

    parent: str = ""
    """The parent whose tasks hold the lock. They may run together, because each has its own
    question."""
    holders: int = 0
    queue: deque[tuple[str, asyncio.Future[None]]] = field(default_factory=deque)


_locks: dict[tuple[str, str, str], _LockState] = {}


@asynccontextmanager
async def lock_conversation(task: TurnRuntime) -> AsyncIterator[None]:
    """Hold the conversation of a task for a turn, in order of arrival.

    A task that waits for its user does not hold the lock.
    """
    key = (task.agent, task.context_id, task.account)
    lock = _locks.setdefault(key, _LockState())
    parent = task.snapshot.parent.task_id or task.id
    try:
        if lock.holders and lock.parent != parent:
            await task.working(_WAIT_TEXT)
            await _wait(lock, parent, task.id)
        else:
            lock.parent = parent
            lock.holders += 1
        try:
            yield
        finally:
            lock.holders -= 1
            _grant_next(lock)
    finally:
        if not lock.holders and not lock.queue and _locks.get(key) is lock:
            del _locks[key]


async def _wait(lock: _LockState, parent: str, task_id: str) -> None:
    """Wait for the lock. The task that grants it increments the number of holders."""
    grant = asyncio.get_running_loop().create_future()
    entry = (parent, grant)
    lock.queue.append(entry)
    try:
        async with asyncio.timeout(WAIT_LIMIT_S):
            await asyncio.shield(grant)
    except BaseException as error:
        with contextlib.suppress(ValueError):
            lock.queue.remove(entry)
        if isinstance(error, TimeoutError):
            logger.warning("conversation.not_waited_for", extra={"task_id": task_id})
            if not grant.done():
                lock.holders += 1
            return
        if grant.done():
            lock.holders -= 1
            _grant_next(lock)
        raise


def _grant_next(lock: _LockState) -> None:
    """Grant the lock to the next turn and to all waiting turns of the same parent."""
    if lock.holders or not lock.queue:
        return
    lock.parent = lock.queue[0][0]
    for entry in [entry for entry in lock.queue if entry[0] == lock.parent]:
        lock.queue.remove(entry)
        lock.holders += 1
        entry[1].set_result(None)
