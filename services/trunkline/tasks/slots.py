"""Slots of tasks on a host. A task's slot has one holder, which is its only writer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from trunkline.tasks.admission import AdmissionControl, AgentQueue
from trunkline.tasks.agent import Agent
from trunkline.tasks.runner import run_turn
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from trunkline.tasks.submission import TaskCreation

logger = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[], Awaitable[bool]]
"""Prepares a slot for the agent's code; returns False if the code must not run."""


class TaskSlot:
    """The slot of a task, held while the task is created, run or terminated."""

    __slots__ = (
        "admission",
        "context",
        "creation",
        "is_stopped",
        "released",
        "runner",
        "runner_done",
        "task_id",
        "termination",
    )

    def __init__(self, task_id: str, context: TurnRuntime | None = None) -> None:
        self.task_id: str = task_id
        self.context: TurnRuntime | None = context
        """The context of the turn; None until it is read."""
        self.creation: TaskCreation | None = None
        """The write of the created event, while it is in progress."""
        self.admission: AgentQueue | None = None
        self.runner: asyncio.Task[None] | None = None
        self.runner_done: asyncio.Event = asyncio.Event()
        self.termination: asyncio.Task[None] | None = None
        """The asyncio task that ends this task, if its code does not."""
        self.released: asyncio.Event = asyncio.Event()
        """Set when the slot is free again."""
        self.is_stopped: bool = False

    def stop(self) -> None:
        """Cancel the agent's code and refuse its further writes."""
        self.is_stopped = True
        if self.context is not None:
            self.context.begin_cancel()
        if self.runner is None:
            self.runner_done.set()
        else:
            self.runner.cancel()


class TaskSlots:
    """Assigns one slot to a task, and runs agents' code in slots within the agents' limits."""

    def __init__(
        self,
        admissions: AdmissionControl,
        *,
        on_release: Callable[[TaskSlot], None],
    ) -> None:
        """`on_release` is called whenever a slot is released."""
        self._admissions = admissions
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

    def reserve(self, task_id: str, context: TurnRuntime | None = None) -> TaskSlot:
        """Take the task's slot. The caller has found it free, and has not awaited since."""
        slot = self._slots[task_id] = TaskSlot(task_id, context)
        return slot

    def admit(self, slot: TaskSlot, agent: Agent) -> None:
        """Count the turn as accepted, before it is journaled, until its code has ended."""
        slot.admission = self._admissions.accept(agent.card.name)

    def release(self, slot: TaskSlot) -> None:
        """Free the slot. Repeating this is harmless."""
        slot.creation = None  # Breaks a reference cycle.
        if self._slots.get(slot.task_id) is slot:
            del self._slots[slot.task_id]
            self._on_release(slot)
        slot.released.set()
        if slot.runner is None:
            self._release_admission(slot)

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
            if agent is not None and slot.context is not None and slot.admission is not None:
                async with slot.admission.enter(slot.context.snapshot.priority):
                    await run_turn(agent, slot.context)
        except asyncio.CancelledError:
            # The terminator journals the end of a stopped slot. Otherwise the host is stopping.
            if not slot.is_stopped:
                raise
        except Exception:
            # A bulkhead: a turn that can't even be failed must not affect the others.
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
