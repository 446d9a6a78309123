"""Artifacts and states that an agent needs to mirror another agent's task."""

import pytest

from harness.agents.inline_agents import NOTHING, OpenHost, define, finish, message, texts
from trunkline.core.json_values import read_member
from trunkline.errors import InvalidAgentResponseError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2


def make_artifact(*words: str) -> artifact_pb2.Artifact:
    return artifact_pb2.Artifact(name="other", parts=[part_pb2.Part(text=word) for word in words])


async def test_a_replacement_creates_changes_or_closes_an_artifact(open_host: OpenHost) -> None:
    async def think_again(task: TaskContext) -> None:
        artifact = task.artifact("first")
        await artifact.append("a thought", last=True)
        await artifact.replace(make_artifact("a better "))
        await artifact.append("thought", last=True)
        whole = task.artifact(id="whole")
        await whole.replace(make_artifact("b"), last=True)
        with pytest.raises(InvalidAgentResponseError):
            await whole.append("c")

    snapshot = await finish(await open_host(define(think_again)))
    assert texts(snapshot) == ["a better thought", "b"]
    assert snapshot.task.artifacts[0].name == "other"
    assert all(artifact.closed for artifact in snapshot.artifacts)


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
    assert read_member(snapshot.task.metadata, "remote")["id"] == "7"


async def test_an_artifact_can_name_its_extensions(open_host: OpenHost) -> None:
    async def extended(task: TaskContext) -> None:
        await task.artifact(extensions=["https://example.com/x"]).append("a", last=True)

    snapshot = await finish(await open_host(define(extended)))
    assert list(snapshot.task.artifacts[0].extensions) == ["https://example.com/x"]


async def test_forwarding_the_same_batch_twice_adds_nothing(open_host: OpenHost) -> None:
    def batch(first: int, *words: str) -> event_pb2.EventBatch:
        start = event_pb2.ArtifactStart(name="answer") if first == 3 else None
        delta = event_pb2.ArtifactDelta(artifact_id="artifact-1", start=start, texts=words)
        header = event_pb2.BatchHeader(
            task_id="child", first_sequence=first, count=len(words), kinds=1 << 3
        )
        return event_pb2.EventBatch(header=header, events=[event_pb2.Event(delta=delta)])

    async def parent(task: TaskContext) -> None:
        await task.working()
        repeated = [batch(3, "a", "b"), batch(4, "b", "c")]
        for forwarded in repeated if task.turn == 2 else [batch(3, "a", "b"), *repeated[:1]]:
            sealed = forwarded.SerializeToString()
            get_turn_runtime(task).forward(sealed, forwarded, agent="math")
        if task.turn == 1:
            await task.require_input("and in the next turn?")

    host = await open_host(define(parent))
    waiting = await finish(host)
    assert texts(waiting) == ["ab"]
    await host.submit("tested", message(task_id=waiting.task.id), NOTHING)
    snapshot = await host.wait_turn(waiting.task.id)
    assert texts(snapshot) == ["abc"]
    (info,) = snapshot.artifacts
    assert (info.origin.task_id, list(info.origin.path)) == ("child", ["math"])
