"""Streams of the mesh that live as long as their host is there: a stand-in for the directory's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trunkline.client import Directory, TaskStream
from trunkline.v1 import message_pb2, message_service_pb2


class Mesh:
    """What the directory will do itself."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @asynccontextmanager
    async def begin(
        self,
        agent: str,
        *,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        patience_s: float,
    ) -> AsyncIterator[TaskStream]:
        """Give a message to an agent and follow the turn."""
        _ = patience_s
        task_id = message.task_id
        client = self._directory.for_task(task_id) if task_id else self._directory.for_agent(agent)
        async with client.stream_message(
            agent=agent, message=message, submission=submission
        ) as stream:
            yield stream

    @asynccontextmanager
    async def follow(
        self,
        task_id: str,
        *,
        account: str,
        patience_s: float,
        after: int | None = None,
        with_snapshot: bool = False,
    ) -> AsyncIterator[TaskStream]:
        """Read a task's events behind a cursor, or from the head on."""
        _ = patience_s
        client = self._directory.for_task(task_id)
        async with client.watch_task(
            task_id, account=account, after=after, with_snapshot=with_snapshot
        ) as stream:
            yield stream
