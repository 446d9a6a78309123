"""Slots of tasks. The holder of a task's slot is its only writer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from trunkline import telemetry
from trunkline.tasks.admission import Admission, AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.runner import TurnRunner
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from trunkline.tasks.submission import TaskCreation

logger = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[], Awaitable[bool]]
"""Prepares a slot for the agent's code. Returns False if the code must not run."""


class TaskSlot:
    """The slot of a task, held while the task is created, run or terminated."""

    __slots__ = (
        "admission",
        "creation",
        "is_stopped",
        "on_released",
        "released",
        "runner",
        "runner_done",
        "runtime",
        "task_id",
        "termination",
    )

    def __init__(self, task_id: str, runtime: TurnRuntime | None = None) -> None:
        self.task_id: str = task_id
        self.runtime: TurnRuntime | None = runtime
        """The runtime of the task's turn; None until the task is read."""
        self.creation: TaskCreation | None = None
        """The write of the created event, until the slot is released."""
        self.admission: Admission | None = None
        self.runner: asyncio.Task[None] | None = None
        self.runner_done: asyncio.Event = asyncio.Event()
        self.termination: asyncio.Task[None] | None = None
        """The asyncio task that ends this task, if its code does not."""
        self.released: asyncio.Event = asyncio.Event()
        """Set when the slot is free again."""
        self.on_released: list[Callable[[], None]] = []
        """Called once, when the slot is free again."""
        self.is_stopped: bool = False

    def stop(self, error_type: str = telemetry.CANCELLED) -> None:
        """Cancel the agent's code and refuse its further writes.

        `error_type` is that of the code's spans.
        """
        self.is_stopped = True
        if self.runtime is not None:
            self.runtime.begin_cancel()
        if self.runner is None:
            self.runner_done.set()
        else:
            self.runner.cancel(error_type)

    def leave(self) -> None:
        """Stop the agent's code without an end of the turn, which continues at the next host."""
        self.is_stopped = True
        if self.runtime is not None:
            self.runtime.pause.is_leaving = True
        if self.runner is None:
            self.runner_done.set()
        else:
            self.runner.cancel()


class TaskSlots:
    """The slots of a journal's tasks. Runs the agents' code in them, within the agents' limits."""

    def __init__(
        self,
        admissions: AdmissionControl,
        runner: TurnRunner,
        *,
        on_release: Callable[[TaskSlot], None],
    ) -> None:
        """`on_release` is called whenever a slot is released."""
        self._admissions = admissions
        self._turn_runner = runner
        self._on_release = on_release
        self._slots: dict[str, TaskSlot] = {}
        # Not in a task group, which would wait forever for code that ignores its cancellation.
        self._runner_tasks: set[asyncio.Task[None]] = set()

    def find(self, task_id: str) -> TaskSlot | None:
        """Return the task's slot, or None if it is free."""
        return self._slots.get(task_id)

    def has(self, task_id: str) -> bool:
        """Return True if the task's slot is held."""
        return task_id in self._slots

    def all(self) -> list[TaskSlot]:
        """Return all slots that are held."""
        return list(self._slots.values())

    def reserve(self, task_id: str, runtime: TurnRuntime | None = None) -> TaskSlot:
        """Take the task's slot. The caller must check that it is free, without an await since."""
        slot = self._slots[task_id] = TaskSlot(task_id, runtime)
        return slot

    def admit(self, slot: TaskSlot, agent: Agent, account: str) -> None:
        """Count the turn as accepted until its code ends. Call it before the turn is journaled."""
        slot.admission = self._admissions.accept(agent.card.name, account)

    def release(self, slot: TaskSlot) -> None:
        """Free the slot. Repeating this is harmless."""
        if self._slots.get(slot.task_id) is slot:
            del self._slots[slot.task_id]
            self._on_release(slot)
        slot.released.set()
        if slot.runner is None:
            self._release_admission(slot)
        listeners, slot.on_released = slot.on_released, []
        for listener in listeners:
            listener()
        slot.creation = None  # Breaks a reference cycle.

    def start(
        self, agent: Agent | None, slot: TaskSlot, prepare: Prepare | None = None
    ) -> asyncio.Task[None]:
        """Run the agent's code in the slot, after `prepare` and only if that returns True."""
        code = self._run(agent, slot, prepare)
        slot.runner = asyncio.create_task(code, name=slot.task_id)  # noqa: TID251  see `_runner_tasks`
        self._runner_tasks.add(slot.runner)
        slot.runner.add_done_callback(self._runner_tasks.discard)
        # A `finally` in the coroutine does not run if the task is canceled before its first step.
        slot.runner.add_done_callback(lambda _: self._on_runner_done(slot))
        return slot.runner

    async def _run(self, agent: Agent | None, slot: TaskSlot, prepare: Prepare | None) -> None:
        try:
            if prepare is not None and not await prepare():
                return
            if agent is not None and slot.runtime is not None and slot.admission is not None:
                async with slot.admission.enter(slot.runtime.snapshot.priority):
                    await self._turn_runner.run(agent, slot.runtime)
        except asyncio.CancelledError:
            # The terminator journals the end of a stopped slot. Otherwise the host is stopping.
            if not slot.is_stopped:
                raise
        except Exception:
            # An error here means that the turn could not be failed. Others must not be affected.
            logger.exception("run.broken", extra={"task_id": slot.task_id})

    def _on_runner_done(self, slot: TaskSlot) -> None:
        self._release_admission(slot)
        slot.runner_done.set()
        if slot.termination is None:
            self.release(slot)

    def _release_admission(self, slot: TaskSlot) -> None:
        admission, slot.admission = slot.admission, None
        if admission is not None:
            self._admissions.release(admission)
