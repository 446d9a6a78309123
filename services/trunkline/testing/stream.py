"""A turn as it streams, for tests to follow."""

from collections.abc import AsyncIterator

from trunkline.testing.answer import Answer
from trunkline.v1 import event_pb2


class Stream:
    """The events of a turn, in order, from the first one on: iterate it, once."""

    def __init__(self, begun: Answer, batches: AsyncIterator[list[bytes]] | None) -> None:
        self.begun = begun
        """The task as it began, or the direct reply: then there are no events."""
        self._batches = batches

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.begun.task_id

    async def __aiter__(self) -> AsyncIterator[event_pb2.Event]:
        """Yield `trunkline.v1.Event`s; `WhichOneof("event")` says what each one is."""
        if self._batches is None:
            return
        async for batches in self._batches:
            for batch in batches:
                for event in event_pb2.EventBatch.FromString(batch).events:
                    yield event

    async def pieces(self) -> AsyncIterator[str]:
        """Yield the pieces of text of the artifacts, as they were written."""
        async for event in self:
            if event.HasField("delta"):
                delta = event.delta
                for text in delta.texts:
                    yield text
                if delta.part.HasField("text"):
                    yield delta.part.text
