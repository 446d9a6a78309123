"""The echo agent behaves by the first word of a request."""

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, message, texts
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import event_pb2, snapshot_pb2
from trunkline_agents.echo.agent import echo


async def send(host: TaskHost, text: str, task_id: str = "") -> snapshot_pb2.TaskSnapshot:
    accepted = await host.submit("echo", message(text, task_id=task_id), NOTHING)
    assert isinstance(accepted, SubmitResult)
    return await host.wait_turn(accepted.task_id)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("echo hello", "hello"),
        ("hello", "hello"),
        ("repeat a: b", "a: b"),
        ("repeat it", "it"),
        ("count me in", "count me in"),
        ("echo", "echo"),
    ],
)
async def test_text_is_repeated(open_host: OpenHost, text: str, answer: str) -> None:
    snapshot = await send(await open_host(echo), text)
    assert texts(snapshot) == [answer]
    assert snapshot.task.artifacts[0].name == "echo"


async def test_count_streams_one_delta_a_number_and_marks_the_last(open_host: OpenHost) -> None:
    host = await open_host(echo)
    snapshot = await send(host, "count 5")
    assert texts(snapshot) == ["1 2 3 4 5 "]
    assert snapshot.task.artifacts[0].name == "count"
    deltas: list[str] = []
    async for batches in await host.watch(snapshot.task.id, account="", after=0, until_head=True):
        for data in batches:
            for event in event_pb2.EventBatch.FromString(data).events:
                deltas += event.delta.texts
    assert deltas == ["1 ", "2 ", "3 ", "4 ", "5 "]
    assert snapshot.artifacts[0].closed


async def test_count_pads_to_the_size(open_host: OpenHost) -> None:
    snapshot = await send(await open_host(echo), "count 3 1 8")
    assert texts(snapshot) == ["1 xxxxxx2 xxxxxx3 xxxxxx"]


async def test_file_is_a_binary_artifact_of_that_size(open_host: OpenHost) -> None:
    host = await open_host(echo)
    (part,) = (await send(host, "file 1000")).task.artifacts[0].parts
    assert (len(part.raw), part.media_type) == (1000, "application/octet-stream")
    refused = await send(host, "file 999999999")
    assert refused.task.status.state == State.TASK_STATE_FAILED
