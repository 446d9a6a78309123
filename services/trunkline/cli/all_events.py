"""`trunkline events` without a task: the events of all tasks of an account, as they happen."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Final, NoReturn

from trunkline.cli.directory import open_directory
from trunkline.cli.event_lines import EventDescriber
from trunkline.cli.task_events import fit_terminal, print_json_events
from trunkline.cli.terminal import BOLD, paint, print_stderr, write
from trunkline.core.task_states import INTERRUPTED
from trunkline.errors import PeerError, TrunklineError
from trunkline.journal.batches import parse_batch
from trunkline.mesh.client import Directory, run_in_background
from trunkline.mesh.client.mesh_tasks import MeshTaskWatch, list_mesh_tasks, watch_mesh_tasks
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2, task_service_pb2

# The tasks whose streams are open at once. Others wait, and are shown from their beginning then.
_MAX_STREAMS: Final = 100
_MAX_POSITIONS: Final = 10_000
_PAGE_SIZE: Final = 100
_MAX_LISTED: Final = 1000
_CURRENT: Final = (
    task_pb2.TASK_STATE_SUBMITTED,
    task_pb2.TASK_STATE_WORKING,
    *sorted(INTERRUPTED),
)
# Clocks of hosts may differ by so much for a list after a cut to miss nothing.
_CLOCK_SKEW_S: Final = 5.0

_Shown = tuple[snapshot_pb2.TaskSummary, event_pb2.EventBatch]


async def print_all_events(mesh: str | None, *, account: str, as_json: bool) -> NoReturn:
    """Print the events of all tasks as they happen, until Ctrl-C.

    Tasks that run already are shown from now on, and new tasks from their first event. A stream
    that is cut continues where it was. An event that a task forwards from a task that it started
    is shown once, as an event of the started task.

    Raises:
        PeerError: the mesh does not answer.
    """
    async with (
        open_directory(mesh, follows=True) as directory,
        watch_mesh_tasks(directory, account) as watch,
    ):
        reader = _Reader(directory, account)
        lines = EventLines()
        # Printing is up to the command, so that a closed pipe ends it.
        async with run_in_background(reader.follow(watch)):
            while True:
                task, batch = await reader.events.get()
                if as_json:
                    print_json_events(batch, task.task_id)
                else:
                    lines.show(task, batch)


class EventLines:
    """Prints a line for each event: its time, task, agent and content.

    On a terminal, the id of the task and the agent are a line of their own, printed when they
    differ from the event before. On each line they would leave few columns for the content.
    """

    def __init__(self) -> None:
        self._task_id = ""
        self._describer = EventDescriber()

    def show(self, task: snapshot_pb2.TaskSummary, batch: event_pb2.EventBatch) -> None:
        """Print the events of a batch."""
        is_grouped = sys.stdout.isatty()
        source = "" if is_grouped else f"{task.task_id}  {task.agent:<10}  "
        lines = []
        if is_grouped and task.task_id != self._task_id:
            self._task_id = task.task_id
            lines.append(f"{paint(f'{task.task_id}  {task.agent}', BOLD, sys.stdout)}\n")
        time = batch.header.time.ToDatetime().strftime("%H:%M:%S")
        for event in batch.events:
            line = f"{time}  {source}{self._describer.describe(event, task.task_id)}"
            lines.append(f"{fit_terminal(line, event)}\n")
        write("".join(lines))


class _Reader:
    """Reads the events of tasks, beginning with the first new event."""

    def __init__(self, directory: Directory, account: str) -> None:
        self.events: asyncio.Queue[_Shown] = asyncio.Queue(_MAX_STREAMS)
        self._directory = directory
        self._account = account
        self._start_s = datetime.now(UTC).timestamp()
        self._slots = asyncio.Semaphore(_MAX_STREAMS)
        # Epoch and sequence of the last event that was read, by task.
        self._positions: dict[str, tuple[int, int]] = {}
        self._reading: set[str] = set()
        # Tasks that changed while they were read.
        self._changed: set[str] = set()

    async def follow(self, watch: MeshTaskWatch) -> None:
        """Read the events of the tasks that run and that change, until canceled.

        Raises:
            PeerError: no host answers at the beginning.
        """
        async with asyncio.TaskGroup() as group:
            for state in _CURRENT:
                for task in await self._list(state=state):
                    self._follow_task(group, task, is_new=self._began_later(task))
            while True:
                tasks, is_incomplete = await watch.take()
                for task in tasks:
                    self._follow_task(group, task, is_new=True)
                if is_incomplete:
                    await self._follow_missed(group)

    async def _follow_missed(self, group: asyncio.TaskGroup) -> None:
        """Read the events of all tasks that changed since the command began."""
        try:
            tasks = await self._list(since_s=self._start_s - _CLOCK_SKEW_S)
        except PeerError as error:
            # The watch reports the next change of the hosts.
            print_stderr(f"error: {error}; `trunkline tasks` shows the tasks once it is back")
            return
        for task in tasks:
            self._follow_task(group, task, is_new=self._began_later(task))

    def _began_later(self, task: snapshot_pb2.TaskSummary) -> bool:
        return task.create_time.ToNanoseconds() / 1e9 >= self._start_s - _CLOCK_SKEW_S

    async def _list(
        self,
        *,
        state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_UNSPECIFIED,
        since_s: float | None = None,
    ) -> list[snapshot_pb2.TaskSummary]:
        request = task_service_pb2.ListTasksRequest(
            account=self._account, state=state, page_size=_PAGE_SIZE
        )
        if since_s is not None:
            request.status_after.FromNanoseconds(int(since_s * 1e9))
        tasks: list[snapshot_pb2.TaskSummary] = []
        while len(tasks) < _MAX_LISTED:
            page = await list_mesh_tasks(self._directory, request)
            tasks += page.tasks
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
        return tasks

    def _follow_task(
        self, group: asyncio.TaskGroup, task: snapshot_pb2.TaskSummary, *, is_new: bool
    ) -> None:
        """Read the events of a task after the events that were read, or all of a new task."""
        if task.task_id in self._reading:
            self._changed.add(task.task_id)
            return
        self._reading.add(task.task_id)
        group.create_task(self._read(task, is_new=is_new))

    async def _read(self, task: snapshot_pb2.TaskSummary, *, is_new: bool) -> None:
        """Read the events of a task until its turn ends, and again if it changed meanwhile."""
        start = (0, 0) if is_new else (0, None)
        try:
            async with self._slots:
                while True:
                    self._changed.discard(task.task_id)
                    epoch, after = self._positions.pop(task.task_id, start)
                    position = await self._read_turn(task, epoch, after)
                    self._positions[task.task_id] = position
                    if task.task_id not in self._changed:
                        break
        except TrunklineError as error:
            print_stderr(f"error: {error}; events of task {task.task_id} are missing")
        finally:
            self._reading.discard(task.task_id)
            while len(self._positions) > _MAX_POSITIONS:
                del self._positions[next(iter(self._positions))]

    async def _read_turn(
        self, task: snapshot_pb2.TaskSummary, epoch: int, after: int | None
    ) -> tuple[int, int]:
        stream = self._directory.watch(
            task.task_id, account=self._account, after=after, epoch=epoch, until_turn_ends=True
        )
        async with stream:
            async for sealed_batches in stream:
                for batch in map(parse_batch, sealed_batches):
                    if not batch.header.HasField("origin"):
                        await self.events.put((task, batch))
            return stream.cursor
