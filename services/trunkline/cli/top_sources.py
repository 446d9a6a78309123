"""The sources of `trunkline top`: the latest updates of the mesh, from its streams."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from trunkline.core.task_states import INTERRUPTED
from trunkline.errors import PeerError, TrunklineError
from trunkline.journal.batches import parse_batch
from trunkline.mesh.client import Directory, parse_journal_id
from trunkline.mesh.client.mesh_tasks import MeshTaskWatch, list_mesh_tasks
from trunkline.mesh.client.mesh_words import follow_updates
from trunkline.mesh.client.methods import read_responses
from trunkline.v1 import (
    registry_service_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
    tool_service_pb2,
    trace_service_pb2,
)

# Tasks whose streams are read at once; further ones are listed without their rate.
_WATCH_LIMIT: Final = 50
_PAGE_SIZE: Final = 100
_WORKING: Final = (task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_WORKING)
_CURRENT: Final = (*_WORKING, *sorted(INTERRUPTED))


class TopSources:
    """The latest updates of the mesh, and the tasks of an account that work or wait."""

    def __init__(self, directory: Directory, account: str) -> None:
        self.directory = directory
        self.tools: tool_service_pb2.WatchToolsResponse = tool_service_pb2.WatchToolsResponse()
        self.edges: tuple[trace_service_pb2.Edge, ...] = ()
        self.is_incomplete: bool = False
        """True if the tasks of a host are missing, because it does not answer."""
        self._account = account
        self._tasks: dict[str, snapshot_pb2.TaskSummary] = {}
        self._meters: dict[str, asyncio.Task[None]] = {}
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._since_s = time.monotonic()

    def list_current_tasks(self) -> list[snapshot_pb2.TaskSummary]:
        """Return the tasks that work or wait, newest status first."""
        return sorted(self._tasks.values(), key=lambda task: -task.status.timestamp.ToNanoseconds())

    def count_working(self, agent: str, host: registry_service_pb2.Host) -> int:
        """Return how many tasks an agent works on at a host."""
        return self._count(agent, host, _WORKING)

    def count_waiting(self, agent: str, host: registry_service_pb2.Host) -> int:
        """Return how many tasks of an agent at a host wait for input."""
        return self._count(agent, host, INTERRUPTED)

    def take_token_rates(self) -> Counter[tuple[str, str]]:
        """Return the pieces of text a second since the last call, by agent and journal."""
        now_s = time.monotonic()
        elapsed_s, self._since_s = max(now_s - self._since_s, 0.001), now_s
        tokens, self._tokens = self._tokens, Counter()
        return Counter({name: round(count / elapsed_s) for name, count in tokens.items()})

    def _count(
        self,
        agent: str,
        host: registry_service_pb2.Host,
        states: Collection[task_pb2.TaskState.ValueType],
    ) -> int:
        return sum(
            task.agent == agent
            and task.status.state in states
            and parse_journal_id(task.task_id) in host.journal_ids
            for task in self._tasks.values()
        )

    async def list_tasks(self) -> None:
        """Read which tasks work or wait, all anew.

        Raises:
            PeerError: no host answers.
        """
        tasks: dict[str, snapshot_pb2.TaskSummary] = {}
        is_incomplete = False
        for state in _CURRENT:
            request = task_service_pb2.ListTasksRequest(
                account=self._account, state=state, page_size=_PAGE_SIZE
            )
            page = await list_mesh_tasks(self.directory, request)
            is_incomplete |= page.is_incomplete
            tasks.update((task.task_id, task) for task in page.tasks)
        self._tasks, self.is_incomplete = tasks, is_incomplete

    async def follow(self, watch: MeshTaskWatch) -> None:
        """Keep the updates of all streams, until canceled."""
        directory = self.directory
        async with asyncio.TaskGroup() as group:
            group.create_task(
                follow_updates(
                    lambda: directory.tool_client().watch_tools(),
                    self._set_tools,
                )
            )
            group.create_task(
                follow_updates(
                    lambda: read_responses(
                        directory.trace_stub().WatchEdges(trace_service_pb2.WatchEdgesRequest())
                    ),
                    self._set_edges,
                )
            )
            self._meter_tasks(group)
            while True:
                tasks, is_incomplete = await watch.take()
                if is_incomplete:
                    try:
                        await self.list_tasks()
                    except PeerError:
                        # The watch reports the next change of the hosts.
                        self.is_incomplete = True
                for task in tasks:
                    self._tasks.pop(task.task_id, None)
                    if task.status.state in _CURRENT:
                        self._tasks[task.task_id] = task
                self._meter_tasks(group)

    def _set_tools(self, update: tool_service_pb2.WatchToolsResponse) -> None:
        self.tools = update

    def _set_edges(self, update: trace_service_pb2.WatchEdgesResponse) -> None:
        self.edges = tuple(update.edges)

    def _meter_tasks(self, group: asyncio.TaskGroup) -> None:
        """Read the streams of the tasks that work, to count what they write."""
        self._meters = {key: meter for key, meter in self._meters.items() if not meter.done()}
        for task in self._tasks.values():
            is_new = task.task_id not in self._meters and task.status.state in _WORKING
            if is_new and len(self._meters) < _WATCH_LIMIT:
                work = self._meter(task.task_id, task.agent)
                self._meters[task.task_id] = group.create_task(work)

    async def _meter(self, task_id: str, agent: str) -> None:
        # The watch of all tasks shows that a task or its host is gone.
        with suppress(TrunklineError):
            watch = self.directory.watch(task_id, account=self._account, until_turn_ends=True)
            async with watch as stream:
                async for sealed_batches in stream:
                    for batch in map(parse_batch, sealed_batches):
                        if not batch.header.HasField("origin"):
                            self._tokens[agent, parse_journal_id(task_id)] += sum(
                                len(event.delta.texts) for event in batch.events
                            )
