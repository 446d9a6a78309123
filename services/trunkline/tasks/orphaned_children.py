"""Children that outlive their parent: canceled as soon as their host can be reached."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from trunkline.errors import TaskNotCancelableError, TaskNotFoundError, TrunklineError
from trunkline.journal.journal import Journal
from trunkline.journal.store import OrphanedChild
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from trunkline.tasks.termination import CancelChild

logger = logging.getLogger(__name__)

# A child without a deadline is minded for so long.
_MINDED_S: Final = 24 * 3600.0
_AT_ONCE: Final = 16
_TRY_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class OrphanedChildren:
    """Children that still run although their parent has ended, because no cancel reached them.

    Each is told again and again, until its host says that it has ended or never was, or until it
    has ended by its deadline. They are in the journal: a later life goes on with them.
    """

    def __init__(self, journal: Journal, cancel_child: "CancelChild | None") -> None:
        self._journal = journal
        self._cancel_child = cancel_child
        self._left: dict[str, OrphanedChild] = {}
        self._is_some = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def add(self, context: TurnRuntime) -> None:
        """Mind the children of a task that has ended, as far as they have not."""
        if self._cancel_child is None:
            return
        until_s = datetime.now(UTC).timestamp() + _MINDED_S
        if context.deadline is not None:
            until_s = min(until_s, context.deadline.timestamp())
        for child in context.children.all:
            stray = OrphanedChild(child.task_id, context.account, until_s)
            self._left[stray.task_id] = stray
            self._is_some.set()
            try:
                self._journal.add_orphaned_child(stray)
            except TrunklineError as error:
                extra = {"task_id": stray.task_id, "reason": error.reason}
                logger.warning("child.not_kept", extra=extra)

    async def run(self) -> None:
        """Tell them, until this is canceled."""
        try:
            self._left |= {stray.task_id: stray for stray in self._journal.list_orphaned_children()}
        except TrunklineError as error:
            logger.warning("children.not_read", extra={"reason": error.reason})
        if self._left:
            self._is_some.set()
        while True:
            await self._is_some.wait()
            pause_s = _FIRST_PAUSE_S
            while self._left:
                async with asyncio.TaskGroup() as group:
                    for stray in tuple(self._left.values()):
                        group.create_task(self._try(stray))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self._is_some.clear()

    async def _try(self, stray: OrphanedChild) -> None:
        if self._cancel_child is None:
            return
        try:
            async with self._slots, asyncio.timeout(_TRY_S):
                await self._cancel_child(stray.task_id, stray.account)
        except (TaskNotFoundError, TaskNotCancelableError):
            pass  # It was never made, or has ended.
        except (TimeoutError, TrunklineError):
            if datetime.now(UTC).timestamp() < stray.until_s:
                return
        del self._left[stray.task_id]
        try:
            self._journal.delete_orphaned_child(stray.task_id)
        except TrunklineError as error:
            # The next life tells it once more; that is harmless.
            logger.info("child.not_dropped", extra={"reason": error.reason})
