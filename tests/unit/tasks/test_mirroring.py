"""Artifacts and states that an agent needs to mirror another agent's task."""

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, finish, message, texts
from trunkline.errors import InvalidAgentResponseError
from trunkline.json_values import read_member
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import artifact_pb2, part_pb2, snapshot_pb2


def make_artifact(*words: str) -> artifact_pb2.Artifact:
    return artifact_pb2.Artifact(name="other", parts=[part_pb2.Part(text=word) for word in words])


async def test_a_replaced_artifact_can_be_appended_to(open_host: OpenHost) -> None:
    async def think_again(task: TaskContext) -> None:
        artifact = task.artifact("first")
        await artifact.append("a thought", last=True)
        await artifact.replace(make_artifact("a better "))
        await artifact.append("thought", last=True)

    snapshot = await finish(await open_host(define(think_again)))
    assert texts(snapshot) == ["a better thought"]
    assert snapshot.task.artifacts[0].name == "other"
    assert snapshot.artifacts[0].closed


async def test_a_replacement_can_close_the_artifact(open_host: OpenHost) -> None:
    async def replace(task: TaskContext) -> None:
        artifact = task.artifact()
        await artifact.append("a")
        await artifact.replace(make_artifact("b"), last=True)
        with pytest.raises(InvalidAgentResponseError):
            await artifact.append("c")

    snapshot = await finish(await open_host(define(replace)))
    assert texts(snapshot) == ["b"]
    assert snapshot.artifacts[0].closed


async def test_a_replacement_can_create_the_artifact(open_host: OpenHost) -> None:
    async def replace(task: TaskContext) -> None:
        await task.artifact(id="x").replace(make_artifact("b"))

    assert texts(await finish(await open_host(define(replace)))) == ["b"]


async def test_an_artifact_of_an_earlier_turn_can_be_continued(open_host: OpenHost) -> None:
    async def two_turns(task: TaskContext) -> None:
        await task.artifact(id="open").append(f"{task.turn} ")
        if task.turn == 1:
            await task.artifact(id="whole").append("one", last=True)
            await task.require_input("continue?")
            return
        with pytest.raises(InvalidAgentResponseError):
            await task.artifact(id="whole").append("two")
        await task.artifact(id="whole").replace(make_artifact("two"))

    host = await open_host(define(two_turns))
    first = await finish(host)
    answer_message = message(task_id=first.task.id, message_id="m-2")
    await host.submit("tested", answer_message, NOTHING)
    snapshot = await host.wait_turn(first.task.id)
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(snapshot) == ["1 2 ", "two"]


async def test_a_state_can_be_entered_with_metadata(open_host: OpenHost) -> None:
    async def cancel_itself(task: TaskContext) -> None:
        turn = get_turn_runtime(task)
        await turn.enter(State.TASK_STATE_WORKING, "on it", metadata={"remote": {"id": "7"}})
        await turn.enter(State.TASK_STATE_CANCELED, "canceled remotely")

    snapshot = await finish(await open_host(define(cancel_itself)))
    assert snapshot.task.status.state == State.TASK_STATE_CANCELED
    assert _get_remote_id(snapshot) == "7"


async def test_an_artifact_can_name_its_extensions(open_host: OpenHost) -> None:
    async def extended(task: TaskContext) -> None:
        await task.artifact(extensions=["https://example.com/x"]).append("a", last=True)

    snapshot = await finish(await open_host(define(extended)))
    assert list(snapshot.task.artifacts[0].extensions) == ["https://example.com/x"]


def _get_remote_id(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    return str(read_member(snapshot.task.metadata, "remote")["id"])
