"""Pauses of a task: no further step begins until it is resumed, also over restarts of its host."""

import asyncio

from trunkline.json_values import update_struct
from trunkline.task_states import PAUSED_KEY, is_paused
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.lifecycle import INTERRUPTED, build_status_event
from trunkline.v1 import snapshot_pb2, task_pb2


class TurnPause:
    """The pause of a task's turn: is it paused, and does its host leave it to the next host."""

    def __init__(self, latest: snapshot_pb2.TaskSnapshot, emitter: Emitter) -> None:
        """Start from the task's metadata."""
        self.is_leaving: bool = False
        """True once the host shuts down and leaves the turn to the next host."""
        self._latest = latest
        self._emitter = emitter
        self._running = asyncio.Event()
        if not is_paused(latest.task.metadata):
            self._running.set()

    @property
    def is_paused(self) -> bool:
        """True if no further step may begin."""
        return not self._running.is_set()

    async def wait(self) -> None:
        """Wait until the task is not paused. Agents that can be paused do so before each step."""
        await self._running.wait()

    async def change(self, state: task_pb2.TaskState.ValueType, *, is_paused: bool) -> None:
        """Pause or resume the task, which is in this state, and journal it. For the host only."""
        if is_paused == self.is_paused:
            return
        event = build_status_event(state)
        update_struct(event.status.metadata, {PAUSED_KEY: is_paused})
        if state in INTERRUPTED:
            # A status that waits is whole: it repeats the question.
            event.status.status.message.CopyFrom(self._latest.task.status.message)
            event.status.continuation = self._latest.continuation
        if is_paused:
            self._running.clear()
        self._emitter.put(event)
        await self._emitter.commit()
        if not is_paused:
            self._running.set()
