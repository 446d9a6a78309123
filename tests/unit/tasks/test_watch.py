"""A reader beside a writer sees every event once, in order."""

from harness.agents.inline_agents import NOTHING, OpenHost, define, message
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import event_pb2


async def speak(task: TaskContext) -> None:
    artifact = task.artifact()
    for number in range(40):
        await artifact.append(f"{number} ")
        if number % 7 == 0:
            await task.working(f"at {number}")
    await artifact.close()


def list_sequences(batches: list[bytes]) -> list[int]:
    """Return the sequences of all batches, in order of arrival."""
    sequences: list[int] = []
    for data in batches:
        header = event_pb2.EventBatch.FromString(data).header
        sequences += range(header.first_sequence, header.first_sequence + header.count)
    return sequences


async def read(host: TaskHost, task_id: str, after: int | None, **options: bool) -> list[bytes]:
    watch = await host.watch(task_id, account="", after=after, **options)
    return [batch async for batches in watch for batch in batches]


async def test_a_live_reader_gets_every_event_once_and_then_the_end(open_host: OpenHost) -> None:
    host = await open_host(define(speak))
    accepted = await host.submit("tested", message(), NOTHING)
    assert isinstance(accepted, SubmitResult)
    batches = await read(host, accepted.task_id, 0)
    head = (await host.snapshot(accepted.task_id, account="")).sequence
    assert list_sequences(batches) == list(range(1, head + 1))
