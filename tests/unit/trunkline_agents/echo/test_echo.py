"""The echo agent behaves by the first word of a request."""

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, message, status_texts, texts
from trunkline.core.json_values import update_struct
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2
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


async def test_ask_needs_input_and_completes_with_the_answer(open_host: OpenHost) -> None:
    host = await open_host(echo)
    waiting = await send(host, "ask What is your name?")
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert status_texts(waiting) == "What is your name?"
    completed = await send(host, "Ada", waiting.task.id)
    assert texts(completed) == ["answer: Ada"]
    assert completed.task.status.state == State.TASK_STATE_COMPLETED


@pytest.mark.parametrize(
    ("text", "state", "reason"),
    [
        ("fail out of luck", State.TASK_STATE_FAILED, "out of luck"),
        ("reject not today", State.TASK_STATE_REJECTED, "not today"),
    ],
)
async def test_it_fails_and_rejects_on_request(
    open_host: OpenHost, text: str, state: State.ValueType, reason: str
) -> None:
    snapshot = await send(await open_host(echo), text)
    assert (snapshot.task.status.state, status_texts(snapshot)) == (state, reason)


async def test_wait_reports_how_long_it_waited(open_host: OpenHost) -> None:
    assert texts(await send(await open_host(echo), "wait 0.01")) == ["waited 0.01 s"]


async def test_message_is_a_direct_reply(open_host: OpenHost) -> None:
    host = await open_host(echo)
    answer = await host.submit("echo", message("message just this"), NOTHING)
    assert isinstance(answer, message_pb2.Message)
    assert answer.parts[0].text == "just this"


async def test_file_is_a_binary_artifact_of_that_size(open_host: OpenHost) -> None:
    host = await open_host(echo)
    (part,) = (await send(host, "file 1000")).task.artifacts[0].parts
    assert (len(part.raw), part.media_type) == (1000, "application/octet-stream")
    refused = await send(host, "file 999999999")
    assert refused.task.status.state == State.TASK_STATE_FAILED


async def test_parts_that_are_not_text_are_returned_unchanged(open_host: OpenHost) -> None:
    host = await open_host(echo)
    request = message("look")
    request.parts.append(part_pb2.Part(raw=b"123", media_type="image/png", filename="a.png"))
    update_struct(request.parts.add().data.struct_value, {"n": 1})
    accepted = await host.submit("echo", request, NOTHING)
    assert isinstance(accepted, SubmitResult)
    (artifact,) = (await host.wait_turn(accepted.task_id)).task.artifacts
    assert list(artifact.parts) == list(request.parts)
