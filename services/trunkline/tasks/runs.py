"""The turns that run on a host now: started, stopped and waited for."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from trunkline.tasks.admission import Admission
from trunkline.tasks.agent import Agent
from trunkline.tasks.context import TaskContext
from trunkline.tasks.runner import run_turn
from trunkline.tasks.settings import TaskSettings

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """A turn under way."""

    context: TaskContext
    done: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    is_stopped: bool = False

    def stop(self) -> None:
        """Cancel the agent's code and take nothing more from it."""
        self.context.begin_cancel()
        self.is_stopped = True
        if self.task is not None:
            self.task.cancel()


class Runs:
    """Runs turns in a task group, at most one of a task, within each agent's limits."""

    def __init__(
        self, group: asyncio.TaskGroup, agents: Sequence[Agent], settings: TaskSettings
    ) -> None:
        self._group = group
        self._grace_s = settings.cancel_grace_s
        self._runs: dict[str, Run] = {}
        self._admissions = {
            agent.card.name: Admission(
                agent.card.name, limit=agent.concurrency, queue_limit=settings.queue_limit
            )
            for agent in agents
        }

    def find(self, task_id: str) -> Run | None:
        """Return the task's turn under way, if there is one."""
        return self._runs.get(task_id)

    def all(self) -> list[Run]:
        """Return all turns under way."""
        return list(self._runs.values())

    def check_admission(self, agent: Agent) -> None:
        """Refuse at once what could only wait in a full queue. OverloadedError."""
        self._admissions[agent.card.name].check()

    def reserve(self, context: TaskContext) -> Run:
        """Take the task's place, so that of two turns at once only one is started."""
        run = self._runs[context.id] = Run(context)
        return run

    def release(self, run: Run) -> None:
        """Give a place back that was reserved and never started."""
        del self._runs[run.context.id]
        run.done.set()

    def start(self, agent: Agent, run: Run) -> asyncio.Task[None]:
        """Run the agent's code in the place that was reserved."""
        run.task = self._group.create_task(self._run(agent, run), name=run.context.id)
        return run.task

    async def wait_stopped(self, run: Run) -> None:
        """Wait until the agent's code has ended, but no longer than the grace it has."""
        try:
            async with asyncio.timeout(self._grace_s):
                await run.done.wait()
        except TimeoutError:
            logger.warning("agent.ignores_cancel", extra={"task_id": run.context.id})

    async def _run(self, agent: Agent, run: Run) -> None:
        admission = self._admissions[agent.card.name]
        try:
            async with admission.enter(run.context.snapshot.priority):
                await run_turn(agent, run.context)
        except asyncio.CancelledError:
            # Whoever stopped the run journals why; only the end of the host goes further up.
            if not run.is_stopped:
                raise
        except Exception:
            # A bulkhead: what one turn could not even be failed with must not end the others.
            logger.exception("run.broken", extra={"task_id": run.context.id})
        finally:
            self.release(run)
