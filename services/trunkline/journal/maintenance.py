"""What a journal does a little at a time, between appends: settle, compact, forget, checkpoint."""

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

_INTERVAL_S: Final = 0.005
# What ends within this is settled together: a transaction costs as much as several small tasks.
_GATHER_S: Final = 0.05
_SETTLED_BYTES: Final = 16 * 1024
_FOLDED_BYTES: Final = 32 * 1024
# What failed is tried again after so long.
_RETRY_S: Final = 1.0


class Maintenance:
    """Steps on a journal's lane, some time after there is something to do.

    A step that finds the lane taken has the next turn on it, so that it always comes to one.
    Whatever fails stays as it was and is tried again; nobody waits for it.
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
        """`on_retired` gets tasks that are read otherwise from now on, `on_landed` a free lane."""
        self._store = store
        self._lane = serial_writer
        self._retiring = Compactor(store, retention)
        self._on_retired = on_changed
        self._on_landed = on_idle
        self._timer: asyncio.TimerHandle | None = None
        self.is_step_waiting = False
        """A step found the lane taken: it is for `take_turn`."""
        self._is_closed = False
        self._was_settling = False
        # The step before left more than a step's work.
        self._is_pressed = False
        # Moving the log: in a thread of its own, and then what is left of it on the lane.
        self._log_mover = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-log")
        self._move: Future[bool] | None = None
        self._has_log_rest = False
        self._failing: dict[str, float] = {}

    def schedule(self) -> None:
        """Something was written: there may be work."""
        if self._is_closed:
            return
        if self._store.needs_checkpoint and self._move is None and not self._has_log_rest:
            self._move_log()
        if self._timer is None and not self.is_step_waiting and self._has_work:
            loop = asyncio.get_running_loop()
            pause_s = _INTERVAL_S if self._is_pressed else _GATHER_S
            self._timer = loop.call_later(pause_s, self._on_timer)

    def scan(self) -> None:
        """Time has passed: something may be due."""
        if not self._is_closed and self._may_try("retire"):
            self._look()
            self.schedule()

    def run_step(self) -> None:
        """The lane is free: do the step that found it taken."""
        if self.is_step_waiting and not self._lane.is_busy:
            self.is_step_waiting = False
            self._step()

    def close(self) -> None:
        """Do nothing more; wait for what is under way."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._log_mover.shutdown()

    @property
    def _has_work(self) -> bool:
        return self._has_log_rest or self._store.has_backlog() or self._retiring.has_work

    def _on_timer(self) -> None:
        self._timer = None
        self.is_step_waiting = True
        self.run_step()

    def _step(self) -> None:
        if self._is_closed:
            return
        if self._has_log_rest:
            self._has_log_rest = False
            self._run("checkpoint", self._store.checkpoint, lambda: None, waits_for_disk=True)
        elif self._store.has_backlog() and not (self._was_settling and self._retiring.has_work):
            self._was_settling = True
            self._run("settle", self._settle, self.schedule)
        elif self._retiring.has_work:
            self._was_settling = False
            self._is_pressed = True
            bite = self._folded()
            if bite is None:
                self.schedule()
            else:
                self._run("retire", bite.write, lambda: self._written(bite))

    def _settle(self) -> None:
        self._is_pressed = self._store.settle(budget_bytes=_SETTLED_BYTES)

    def _folded(self) -> RetentionStep | None:
        """Go on with a task that is due; one that is damaged is named once, and left alone."""
        try:
            return self._retiring.next_step(_FOLDED_BYTES)
        except (JournalUnavailableError, InvalidAgentResponseError) as error:
            logger.error("task.not_compacted", extra={"reason": error.reason})
            return None

    def _written(self, bite: RetentionStep) -> None:
        self._retiring.confirm(bite)
        self._on_retired(bite.task_ids)
        if not self._retiring.has_work:
            self._look()
        if not self._is_closed and self._has_work:
            self.schedule()

    def _look(self) -> None:
        try:
            self._retiring.scan()
        except JournalUnavailableError as error:
            self._failed("retire", error)

    def _run(
        self,
        name: str,
        work: Callable[[], object],
        then: Callable[[], None],
        *,
        waits_for_disk: bool = False,
    ) -> None:
        def landed(error: BaseException | None) -> None:
            if error is None:
                self._succeeded(name)
                then()
            else:
                self._failed(name, error)
                if name == "retire":
                    self._retiring.reset()
            self._on_landed()

        self._lane.run(work, landed, waits_for_disk=waits_for_disk)

    def _move_log(self) -> None:
        if not self._may_try("checkpoint"):
            return
        loop = asyncio.get_running_loop()
        move = self._move = self._log_mover.submit(self._store.checkpoint)
        move.add_done_callback(lambda _: loop.call_soon_threadsafe(self._on_log_moved, move))

    def _on_log_moved(self, move: "Future[bool]") -> None:
        self._move = None
        error = move.exception()
        if error is not None:
            self._failed("checkpoint", error)
            return
        self._succeeded("checkpoint")
        self._has_log_rest = not move.result()
        self.schedule()

    def _may_try(self, name: str) -> bool:
        return time.monotonic() >= self._failing.get(name, 0)

    def _succeeded(self, name: str) -> None:
        if self._failing.pop(name, None) is not None:
            logger.warning(
                "journal.upkeep_goes_on", extra={"journal": self._store.id, "work": name}
            )

    def _failed(self, name: str, error: BaseException) -> None:
        """It is tried again after a while, when something is written; said once."""
        if isinstance(error, FencedError):
            self._is_closed = True
        if name not in self._failing:
            extra = {"journal": self._store.id, "work": name, "error": type(error).__name__}
            logger.warning("journal.upkeep_failed", extra=extra)
        self._failing[name] = time.monotonic() + _RETRY_S
