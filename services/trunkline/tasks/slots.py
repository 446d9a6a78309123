"""The places of tasks on a host: who holds a task's is its one writer, and runs its code."""

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

# What is done in a place before the agent's code; False: there is nothing to run.
Prepare: TypeAlias = Callable[[], Awaitable[bool]]


class TaskSlot:
    """A task's place: held while something is done to the task, by code or over its head."""

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
        self.task_id = task_id
        self.context = context
        """None: it has yet to be read."""
        self.creation: TaskCreation | None = None
        """What makes the task, if it was made here."""
        self.admission: AgentQueue | None = None
        self.runner: asyncio.Task[None] | None = None
        self.runner_done = asyncio.Event()
        self.termination: asyncio.Task[None] | None = None
        """What ends the task over the head of its code."""
        self.released = asyncio.Event()
        """The place is free again."""
        self.is_stopped = False

    def stop(self) -> None:
        """Cancel the code and take nothing more from it."""
        self.is_stopped = True
        if self.context is not None:
            self.context.begin_cancel()
        if self.runner is None:
            self.runner_done.set()
        else:
            self.runner.cancel()


class TaskSlots:
    """Gives out places, at most one of a task, and runs code in them within the agents' limits."""

    def __init__(
        self,
        admissions: AdmissionControl,
        *,
        on_release: Callable[[TaskSlot], None],
    ) -> None:
        """`on_release` is called whenever a place is given back."""
        self._admissions = admissions
        self._on_release = on_release
        self._runs: dict[str, TaskSlot] = {}
        # In no task group: one would wait for code that ignores being canceled without end.
        self._codes: set[asyncio.Task[None]] = set()

    def find(self, task_id: str) -> TaskSlot | None:
        """Return who holds the task's place, if somebody does."""
        return self._runs.get(task_id)

    def all(self) -> list[TaskSlot]:
        """Return all places that are held."""
        return list(self._runs.values())

    def reserve(self, task_id: str, context: TurnRuntime | None = None) -> TaskSlot:
        """Take the task's place, which is free: without a wait since that was looked up."""
        run = self._runs[task_id] = TaskSlot(task_id, context)
        return run

    def admit(self, run: TaskSlot, agent: Agent) -> None:
        """Count the turn in, from before it is journaled until its code has ended."""
        run.admission = self._admissions.accept(agent.card.name)

    def release(self, run: TaskSlot) -> None:
        """Give the place back. Repeating this is harmless."""
        run.creation = None  # It holds the run in turn.
        if self._runs.get(run.task_id) is run:
            del self._runs[run.task_id]
            self._on_release(run)
        run.released.set()
        if run.runner is None:
            self._leave(run)

    def start(
        self, agent: Agent | None, run: TaskSlot, opening: Prepare | None = None
    ) -> asyncio.Task[None]:
        """Run the agent's code in the place, behind `opening` and only if that says so."""
        code = self._run(agent, run, opening)
        run.runner = asyncio.create_task(code, name=run.task_id)  # noqa: TID251  see `_codes`
        self._codes.add(run.runner)
        run.runner.add_done_callback(self._codes.discard)
        # Not in a `finally` of the code: one that is canceled before its first step has none.
        run.runner.add_done_callback(lambda _: self._on_over(run))
        return run.runner

    async def _run(self, agent: Agent | None, run: TaskSlot, opening: Prepare | None) -> None:
        try:
            if opening is not None and not await opening():
                return
            if agent is not None and run.context is not None and run.admission is not None:
                async with run.admission.enter(run.context.snapshot.priority):
                    await run_turn(agent, run.context)
        except asyncio.CancelledError:
            # Whoever stopped the run journals why; only the end of the host goes further up.
            if not run.is_stopped:
                raise
        except Exception:
            # A bulkhead: what one turn could not even be failed with must not end the others.
            logger.exception("run.broken", extra={"task_id": run.task_id})

    def _on_over(self, run: TaskSlot) -> None:
        self._leave(run)
        run.runner_done.set()
        if run.termination is None:
            self.release(run)

    def _leave(self, run: TaskSlot) -> None:
        admission, run.admission = run.admission, None
        if admission is not None:
            self._admissions.release(admission)
