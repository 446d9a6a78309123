"""Maintains a journal in the background: compacts and deletes tasks, and runs checkpoints."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from trunkline.errors import FencedError, InvalidAgentResponseError, JournalUnavailableError
from trunkline.journal.retention import Compactor, Retention, RetentionStep
from trunkline.journal.serial_writer import SerialWriter
from trunkline.journal.store import JournalStore

logger = logging.getLogger(__name__)

# The pause before each step, so that other writes are not delayed.
_INTERVAL_S: Final = 0.005
# The number of bytes that one step folds.
_FOLD_BYTES: Final = 32 * 1024
# The pause after a failed step before another try.
_RETRY_S: Final = 1.0


class Maintenance:
    """Runs short maintenance writes soon after there is work for them.

    If a write is in flight, the step runs next, so maintenance never starves. A step that fails
    changes nothing, and is retried after a later write or renewal of the lease. No caller waits for
    a step.
    """

    def __init__(
        self,
        store: JournalStore,
        serial_writer: SerialWriter,
        retention: Retention,
        *,
        on_changed: Callable[[Iterable[str]], None],
        on_idle: Callable[[], None],
    ) -> None:
        """`on_changed` gets ids of compacted or deleted tasks. `on_idle` follows each step."""
        self._store = store
        self._serial_writer = serial_writer
        self._compactor = Compactor(store, retention)
        self._on_changed = on_changed
        self._on_idle = on_idle
        self._timer: asyncio.TimerHandle | None = None
        self.is_step_waiting: bool = False
        """A step waits for the end of a write. Call `run_step` at that end."""
        self._is_closed = False
        # A checkpoint runs in its own thread while writes run. If it can't move all of the log, the
        # serial writer runs another one without concurrent writes.
        self._checkpoint_executor = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="journal-log"
        )
        self._checkpoint: Future[bool] | None = None
        self._needs_exclusive_checkpoint = False
        self._failing: dict[str, float] = {}

    def schedule(self) -> None:
        """Start a timer for the next step if there is work. Call this after writes."""
        if self._is_closed:
            return
        if (
            self._store.needs_checkpoint
            and self._checkpoint is None
            and not self._needs_exclusive_checkpoint
        ):
            self._start_checkpoint()
        if self._timer is None and not self.is_step_waiting and self._has_work:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_INTERVAL_S, self._on_timer)

    def scan(self) -> None:
        """Look for tasks whose retention time is over. Call this at each renewal of the lease."""
        if not self._is_closed and self._may_try("retire"):
            self._scan()
            self.schedule()

    def run_step(self) -> None:
        """Run the waiting step unless a write is in flight."""
        if self.is_step_waiting and not self._serial_writer.is_busy:
            self.is_step_waiting = False
            self._step()

    def close(self) -> None:
        """Stop, and block until a running checkpoint has ended."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._checkpoint_executor.shutdown()

    @property
    def _has_work(self) -> bool:
        return self._needs_exclusive_checkpoint or self._compactor.has_work

    def _on_timer(self) -> None:
        self._timer = None
        self.is_step_waiting = True
        self.run_step()

    def _step(self) -> None:
        if self._is_closed:
            return
        if self._needs_exclusive_checkpoint:
            self._needs_exclusive_checkpoint = False
            self._run("checkpoint", self._store.checkpoint, lambda: None, waits_for_disk=True)
        elif self._compactor.has_work:
            step = self._next_retention_step()
            if step is None:
                self.schedule()
            else:
                self._run("retire", step.write, lambda: self._on_step_written(step))

    def _next_retention_step(self) -> RetentionStep | None:
        """Continue folding, and return the next write if one is ready.

        A damaged task is logged once and then skipped.
        """
        try:
            return self._compactor.next_step(_FOLD_BYTES)
        except (JournalUnavailableError, InvalidAgentResponseError) as error:
            logger.error("task.not_compacted", extra={"reason": error.reason})
            return None

    def _on_step_written(self, step: RetentionStep) -> None:
        step.confirm()
        self._on_changed(step.task_ids)
        if not self._compactor.has_work:
            self._scan()
        if not self._is_closed and self._has_work:
            self.schedule()

    def _scan(self) -> None:
        try:
            self._compactor.scan()
        except JournalUnavailableError as error:
            self._on_failure("retire", error)

    def _run(
        self,
        name: str,
        write: Callable[[], object],
        on_success: Callable[[], None],
        *,
        waits_for_disk: bool = False,
    ) -> None:
        def on_done(error: BaseException | None) -> None:
            if error is None:
                self._on_success(name)
                on_success()
            else:
                self._on_failure(name, error)
                if name == "retire":
                    self._compactor.reset()
            self._on_idle()

        if waits_for_disk or self._serial_writer.is_threaded:
            self._serial_writer.run(write, on_done)
            return
        try:
            write()
        except Exception as error:  # noqa: BLE001  the failure is logged, and the work is tried again
            on_done(error)
        else:
            on_done(None)

    def _start_checkpoint(self) -> None:
        if not self._may_try("checkpoint"):
            return
        loop = asyncio.get_running_loop()
        checkpoint = self._checkpoint = self._checkpoint_executor.submit(self._store.checkpoint)
        checkpoint.add_done_callback(
            lambda _: loop.call_soon_threadsafe(self._on_checkpoint_done, checkpoint)
        )

    def _on_checkpoint_done(self, checkpoint: "Future[bool]") -> None:
        self._checkpoint = None
        error = checkpoint.exception()
        if error is not None:
            self._on_failure("checkpoint", error)
            return
        self._on_success("checkpoint")
        self._needs_exclusive_checkpoint = not checkpoint.result()
        self.schedule()

    def _may_try(self, name: str) -> bool:
        return time.monotonic() >= self._failing.get(name, 0)

    def _on_success(self, name: str) -> None:
        if self._failing.pop(name, None) is not None:
            logger.warning(
                "journal.upkeep_goes_on", extra={"journal": self._store.id, "work": name}
            )

    def _on_failure(self, name: str, error: BaseException) -> None:
        """Log the first failure. The work is tried again after a pause."""
        if isinstance(error, FencedError):
            self._is_closed = True
        if name not in self._failing:
            extra = {"journal": self._store.id, "work": name, "error": type(error).__name__}
            logger.warning("journal.upkeep_failed", extra=extra)
        self._failing[name] = time.monotonic() + _RETRY_S
