"""Maintains a journal in the background: compacts and deletes tasks, and runs checkpoints."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from trunkline.errors import FencedError, InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.retention import Compactor, Retention, RetentionStep
from trunkline.journal.store import JournalStore

logger = logging.getLogger(__name__)

# The pause before each step, so that other writes are not delayed.
_INTERVAL_S: Final = 0.005
# The number of bytes that one step folds.
_FOLD_BYTES: Final = 32 * 1024
# The pause after a failed step before another try.
_RETRY_S: Final = 1.0

_CHECKPOINT: Final = "checkpoint"
_RETIRE: Final = "retire"


class Maintenance:
    """Runs short maintenance writes soon after there is work for them.

    Its task ends when there is no more work. A step that fails changes nothing, and is retried
    after a later write or renewal of the lease. No caller waits for a step.
    """

    def __init__(
        self,
        store: JournalStore,
        write_lock: asyncio.Lock,
        retention: Retention,
        *,
        on_changed: Callable[[Iterable[str]], None],
    ) -> None:
        """Each write holds `write_lock`. `on_changed` gets ids of compacted or deleted tasks."""
        self._store = store
        self._write_lock = write_lock
        self._compactor = Compactor(store, retention)
        self._on_changed = on_changed
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._failing: dict[str, float] = {}

    def schedule(self) -> None:
        """Start the work if there is some and it does not run. Call this after writes."""
        if self._task is None and self._has_work:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def scan(self) -> None:
        """Look for tasks whose retention time is over. Call this at each renewal of the lease."""
        # While the task runs, it looks for them itself.
        if self._task is None and not self._is_closed and self._may_try(_RETIRE):
            await self._scan()
            self.schedule()

    async def close(self) -> None:
        """Stop, after a step in flight."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    @property
    def _has_work(self) -> bool:
        return not self._is_closed and (self._is_checkpoint_due or self._compactor.has_work)

    @property
    def _is_checkpoint_due(self) -> bool:
        return self._store.needs_checkpoint and self._may_try(_CHECKPOINT)

    async def _run(self) -> None:
        """Run steps until there is no more work."""
        try:
            while self._has_work:
                await asyncio.sleep(_INTERVAL_S)
                if self._is_closed:
                    return
                if self._is_checkpoint_due:
                    await self._checkpoint()
                if self._compactor.has_work:
                    await self._retire()
        finally:
            self._task = None

    async def _checkpoint(self) -> None:
        """Move the log into the file, in part without other writes if they prevent it."""
        try:
            if not await self._store.checkpoint():
                async with self._write_lock:
                    await self._store.checkpoint()
        except (FencedError, JournalUnavailableError) as error:
            self._on_failure(_CHECKPOINT, error)
        else:
            self._on_success(_CHECKPOINT)

    async def _retire(self) -> None:
        """Run the next step of the compactor."""
        step = await self._next_retention_step()
        if step is None:
            return
        try:
            async with self._write_lock:
                await step.write()
                step.confirm()
                self._on_changed(step.task_ids)
        except (FencedError, JournalUnavailableError) as error:
            self._compactor.reset()
            self._on_failure(_RETIRE, error)
            return
        self._on_success(_RETIRE)
        if not self._compactor.has_work:
            await self._scan()

    async def _next_retention_step(self) -> RetentionStep | None:
        """Continue folding, and return the next write if one is ready.

        A damaged task is logged once and then skipped.
        """
        try:
            return await self._compactor.next_step(_FOLD_BYTES)
        except (JournalUnavailableError, InvalidAgentResponseError) as error:
            logger.error("task.not_compacted", extra={"reason": error.reason})
            return None

    async def _scan(self) -> None:
        try:
            await self._compactor.scan()
        except JournalUnavailableError as error:
            self._on_failure(_RETIRE, error)

    def _may_try(self, name: str) -> bool:
        return time.monotonic() >= self._failing.get(name, 0)

    def _on_success(self, name: str) -> None:
        if self._failing.pop(name, None) is not None:
            logger.warning(
                "journal.upkeep_goes_on", extra={"journal": self._store.id, "work": name}
            )

    def _on_failure(self, name: str, error: Exception) -> None:
        """Log the first failure. The work is tried again after a pause."""
        if isinstance(error, FencedError):
            self._is_closed = True
        if name not in self._failing:
            extra = {"journal": self._store.id, "work": name, "error": type(error).__name__}
            logger.warning("journal.upkeep_failed", extra=extra)
        self._failing[name] = time.monotonic() + _RETRY_S
