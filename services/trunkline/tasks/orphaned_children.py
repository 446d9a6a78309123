"""Cancels children that run after their parent's end, once their host can be reached."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from trunkline.core.backoff import Backoff
from trunkline.core.users import continue_for
from trunkline.errors import (
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
    UserNotProvenError,
)
from trunkline.journal.journal import Journal
from trunkline.journal.store import OrphanedChild
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from trunkline.tasks.resources import CancelChild

logger = logging.getLogger(__name__)

# Cancels of a child without a deadline are retried for so long.
_DEFAULT_LIFETIME_S: Final = 24 * 3600.0
_MAX_CONCURRENT_CANCELS: Final = 16
_CANCEL_TIMEOUT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 5.0


class OrphanedChildren:
    """Children that may run although their parent has ended, because no cancel reached them.

    The cancel of each child is retried until its host answers or the child's deadline has passed.
    The journal stores the children, so the retries continue after a restart.
    """

    def __init__(self, journal: Journal, cancel_child: "CancelChild | None") -> None:
        self._journal = journal
        self._cancel_child = cancel_child
        self._pending: dict[str, OrphanedChild] = {}
        self._has_pending = asyncio.Event()
        self._concurrency = asyncio.Semaphore(_MAX_CONCURRENT_CANCELS)

    async def add(self, runtime: TurnRuntime) -> None:
        """Store the unfinished children of a task that has ended."""
        if self._cancel_child is None:
            return
        until_s = datetime.now(UTC).timestamp() + _DEFAULT_LIFETIME_S
        if runtime.deadline is not None:
            until_s = min(until_s, runtime.deadline.timestamp())
        for child in runtime.children.all:
            orphan = OrphanedChild(
                child.task_id, runtime.account, until_s, runtime.latest.user_statement
            )
            try:
                await self._journal.add_orphaned_child(orphan)
            except TrunklineError as error:
                extra = {"task_id": orphan.task_id, "reason": error.reason}
                logger.warning("child.not_kept", extra=extra)
            self._pending[orphan.task_id] = orphan
            self._has_pending.set()

    async def run(self) -> None:
        """Cancel the children, until this call is canceled."""
        if self._cancel_child is None:
            return
        try:
            self._pending |= {
                orphan.task_id: orphan for orphan in await self._journal.list_orphaned_children()
            }
        except TrunklineError as error:
            logger.warning("children.not_read", extra={"reason": error.reason})
        async with asyncio.TaskGroup() as group:
            while True:
                for orphan in self._pending.values():
                    group.create_task(self._cancel(orphan, self._cancel_child))
                self._pending.clear()
                await self._has_pending.wait()
                self._has_pending.clear()

    async def _cancel(self, orphan: OrphanedChild, cancel_child: "CancelChild") -> None:
        """Cancel a child, again until it is reached or its time is over.

        Each child has its own pauses. A call that can't reach its child delays others only while
        it takes one of the few places for concurrent calls.
        """
        continue_for(orphan.account, "", orphan.user_statement)
        backoff = Backoff(first_s=_FIRST_PAUSE_S, limit_s=_MAX_PAUSE_S)
        while not await self._try_to_cancel(orphan, cancel_child):
            await backoff.pause()
        try:
            await self._journal.delete_orphaned_child(orphan.task_id)
        except TrunklineError as error:
            # The child is canceled once more after a restart, which is harmless.
            logger.info("child.not_dropped", extra={"reason": error.reason})

    async def _try_to_cancel(self, orphan: OrphanedChild, cancel_child: "CancelChild") -> bool:
        """Cancel a child; return whether no further try is needed."""
        try:
            async with self._concurrency, asyncio.timeout(_CANCEL_TIMEOUT_S):
                await cancel_child(orphan.task_id, orphan.account)
        except (TaskNotFoundError, TaskNotCancelableError):
            pass  # The child was never created, or has ended.
        except UserNotProvenError as error:
            # The statement has ended and does not become valid again.
            extra = {"task_id": orphan.task_id, "reason": error.reason}
            logger.warning("child.not_canceled", extra=extra)
        except (TimeoutError, TrunklineError):
            return datetime.now(UTC).timestamp() >= orphan.until_s
        return True
