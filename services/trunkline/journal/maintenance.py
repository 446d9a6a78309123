"""Maintains a journal in the background: compacts and deletes tasks, and runs checkpoints."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from trunkline.core.backoff import Backoff
from trunkline.errors import FencedError, TrunklineError
from trunkline.journal.measurements import count_failed_maintenance
from trunkline.journal.retention import Compactor, Retention, RetentionStep
from trunkline.journal.store import JournalStore

logger = logging.getLogger(__name__)

# The pause before each step, so that other writes are not delayed.
_INTERVAL_S: Final = 0.005
# The number of bytes that one step folds.
_FOLD_BYTES: Final = 32 * 1024
# The first and the longest pause after failed steps of one kind of work.
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0


class Maintenance:
    """Runs short maintenance writes soon after there is work for them.

    Checkpoints and retention are two tasks of the journal's group, so that failures of the one do
    not delay the other. A write that fails changes nothing. It is logged and counted, and tried
    again after a pause that grows while it fails, whatever the error is. No caller waits for a
    step.
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
        self._is_scan_due = False
        self._scheduled = asyncio.Event()
        self._closed = asyncio.Event()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the work, which ends after `close`."""
        group.create_task(self._repeat("checkpoint", self._needs_checkpoint, self._checkpoint))
        group.create_task(self._repeat("retention", self._needs_retention, self._retire))

    def schedule(self) -> None:
        """Start the next step if there is work. Call this after writes."""
        if self._has_work:
            self._scheduled.set()

    def scan(self) -> None:
        """Let the next step look for tasks whose retention time is over."""
        self._is_scan_due = True
        self._scheduled.set()

    def close(self) -> None:
        """Stop, after the steps in flight."""
        self._closed.set()
        self._scheduled.set()

    @property
    def _has_work(self) -> bool:
        return self._needs_checkpoint() or self._needs_retention()

    def _needs_checkpoint(self) -> bool:
        return self._store.needs_checkpoint

    def _needs_retention(self) -> bool:
        return self._is_scan_due or self._compactor.has_work

    async def _repeat(
        self, name: str, is_needed: Callable[[], bool], step: Callable[[], Awaitable[bool]]
    ) -> None:
        """Run steps of one kind of work whenever it is needed, until the journal is closed.

        A step returns True if it wrote something, or found that there is nothing to write. Only
        then have earlier failures passed.
        """
        backoff = Backoff(first_s=_RETRY_S, limit_s=_LONGEST_RETRY_S)
        is_failing = False
        pause_s = _INTERVAL_S
        extra = {"journal": self._store.id, "work": name}
        while not self._closed.is_set():
            if not is_needed():
                self._scheduled.clear()
                await self._scheduled.wait()
                continue
            await self._pause(pause_s)
            if self._closed.is_set():
                return
            try:
                has_passed = await step()
            except Exception as error:
                pause_s = backoff.next_s()
                count_failed_maintenance(error)
                if isinstance(error, FencedError):
                    self.close()
                if not is_failing:
                    failed = {**extra, "error": type(error).__name__}
                    unexpected = None if isinstance(error, TrunklineError) else error
                    logger.warning("journal.upkeep_failed", exc_info=unexpected, extra=failed)
                is_failing = True
            else:
                pause_s = _INTERVAL_S
                if is_failing and has_passed:
                    logger.warning("journal.upkeep_goes_on", extra=extra)
                    is_failing = False
                    backoff.reset()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    async def _checkpoint(self) -> bool:
        """Move the log into the file, in part without other writes if they prevent it."""
        if not await self._store.checkpoint():
            async with self._write_lock:
                await self._store.checkpoint()
        return True

    async def _retire(self) -> bool:
        """Run the next step of the compactor, or look for work."""
        if not self._compactor.has_work:
            await self._compactor.scan()
            self._is_scan_due = False
            return not self._compactor.has_work
        step = await self._next_retention_step()
        if step is None:
            return False
        # A scan finds a limited number of tasks, and finds them again after a failed write.
        self._is_scan_due = True
        try:
            async with self._write_lock:
                await step.write()
                step.confirm()
                self._on_changed(step.task_ids)
        except Exception:
            self._compactor.reset()
            raise
        # The write has made the log longer.
        self.schedule()
        return True

    async def _next_retention_step(self) -> RetentionStep | None:
        """Continue folding, and return the next write if one is ready.

        A task that can't be folded is logged once and then skipped.
        """
        try:
            return await self._compactor.next_step(_FOLD_BYTES)
        except TrunklineError as error:
            logger.error("task.not_compacted", extra={"reason": error.reason})
        except Exception:
            logger.exception("task.not_compacted")
        return None
