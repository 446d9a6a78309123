from collections.abc import Sequence

import pytest

from harness.journal.builders import (
    TASK,
    TIME_NS,
    append,
    batch,
    begin,
    completed,
    created,
    message,
    status,
    working,
)
from trunkline.core.json_values import read_member, struct_json, update_struct
from trunkline.errors import InvalidAgentResponseError
from trunkline.journal.events import plan_event
from trunkline.journal.fold import Fold
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, snapshot_pb2, task_pb2

Events = Sequence[event_pb2.Event]


def fold(*events: event_pb2.Event) -> snapshot_pb2.TaskSnapshot:
    task_fold = Fold(TASK)
    task_fold.apply(batch([created(), *events]))
    return task_fold.snapshot()


def add_part(artifact_id: str, part: part_pb2.Part) -> event_pb2.Event:
    delta = event_pb2.ArtifactDelta(artifact_id=artifact_id, part=part)
    return event_pb2.Event(delta=delta)


def rewind(artifact_id: str, *texts: str) -> event_pb2.Event:
    remains = artifact_pb2.Artifact(
        artifact_id=artifact_id,
        name="shortened",
        parts=[part_pb2.Part(text=text) for text in texts],
    )
    return event_pb2.Event(rewound=event_pb2.ArtifactRewound(remains=remains))


def parts(snapshot: snapshot_pb2.TaskSnapshot, index: int = 0) -> list[part_pb2.Part]:
    return list(snapshot.task.artifacts[index].parts)


def tool_started(call_id: str = "c") -> event_pb2.Event:
    return event_pb2.Event(tool_started=event_pb2.ToolStarted(call_id=call_id, tool="m/t"))


def tool_finished(call_id: str = "c") -> event_pb2.Event:
    return event_pb2.Event(tool_finished=event_pb2.ToolFinished(call_id=call_id, tool="m/t"))


def child_started(task_id: str = "child") -> event_pb2.Event:
    return event_pb2.Event(child_started=event_pb2.ChildStarted(task_id=task_id, agent="math"))


def child_finished(task_id: str = "child") -> event_pb2.Event:
    return event_pb2.Event(
        child_finished=event_pb2.ChildFinished(task_id=task_id, state=task_pb2.TASK_STATE_COMPLETED)
    )


def approval_requested(tool: str = "m/t") -> event_pb2.Event:
    return event_pb2.Event(
        approval_requested=event_pb2.ApprovalRequested(approval_id="ap", tool=tool)
    )


def approval_answered() -> event_pb2.Event:
    return event_pb2.Event(
        approval_answered=event_pb2.ApprovalAnswered(
            approval_id="ap", decision=event_pb2.APPROVAL_DECISION_APPROVED
        )
    )


def route(agent: str, confidence: float = 0.5) -> event_pb2.Event:
    score = event_pb2.AgentScore(agent=agent, score=2, confidence=confidence, reasons=["tag"])
    return event_pb2.Event(
        route_decided=event_pb2.RouteDecided(
            agent=agent, confidence=confidence, reasons=["tag"], scores=[score]
        )
    )


def test_a_created_task_has_the_submitted_values() -> None:
    first = created()
    first.created.caller = "alice"
    first.created.priority = 3
    first.created.traceparent = "00-1-2-01"
    first.created.accepted_output_modes.append("text/plain")
    first.created.deadline.FromSeconds(99)
    first.created.parent.task_id = "parent"
    update_struct(first.created.metadata, {"team": "a"})
    task_fold = Fold(TASK)
    task_fold.apply(batch([first]))
    snapshot = task_fold.snapshot()
    task = snapshot.task
    assert (task.id, task.context_id, snapshot.agent) == (TASK, "context-1", "echo")
    assert (snapshot.account, snapshot.caller, snapshot.priority) == ("acme", "alice", 3)
    assert snapshot.traceparent == "00-1-2-01"
    assert list(snapshot.accepted_output_modes) == ["text/plain"]
    assert (snapshot.deadline.seconds, snapshot.parent.task_id) == (99, "parent")
    assert task.status.state == task_pb2.TASK_STATE_SUBMITTED
    assert task.status.timestamp.ToNanoseconds() == snapshot.create_time.ToNanoseconds() == TIME_NS
    assert list(task.history) == [message("hello")]
    assert struct_json(task.metadata) == {"team": "a"}
    assert (snapshot.turn, snapshot.sequence, snapshot.epoch) == (1, 1, 1)


@pytest.mark.parametrize(
    "part",
    [
        part_pb2.Part(text="1", filename="f"),
        part_pb2.Part(text="1", media_type="text/csv"),
        part_pb2.Part(raw=b"1"),
    ],
    ids=["filename", "media type", "bytes"],
)
def test_a_part_with_more_than_text_stays_separate(part: part_pb2.Part) -> None:
    snapshot = fold(begin("a", "x"), add_part("a", part), append("a", "y"))
    assert parts(snapshot) == [part_pb2.Part(text="x"), part, part_pb2.Part(text="y")]


def test_a_text_with_metadata_is_not_joined() -> None:
    tagged = add_part("a", part_pb2.Part(text="y"))
    update_struct(tagged.delta.part.metadata, {"lang": "en"})
    assert len(parts(fold(begin("a", "x"), tagged, append("a", "z")))) == 3


def test_the_first_delta_describes_its_artifact() -> None:
    first = begin("a", "x")
    first.delta.start.description = "for people"
    first.delta.start.kind = event_pb2.ARTIFACT_KIND_ANSWER
    first.delta.start.extensions.append("urn:x")
    update_struct(first.delta.start.metadata, {"k": 1})
    snapshot = fold(working(), first)
    (artifact,) = snapshot.task.artifacts
    assert (artifact.name, artifact.description) == ("a", "for people")
    assert (list(artifact.extensions), read_member(artifact.metadata, "k")) == (["urn:x"], 1)
    assert snapshot.artifacts[0] == snapshot_pb2.ArtifactInfo(
        artifact_id="a",
        kind=event_pb2.ARTIFACT_KIND_ANSWER,
        first_sequence=3,
        turn=1,
    )


def test_a_rewind_cuts_an_artifact_back_and_opens_it_again() -> None:
    snapshot = fold(
        begin("a", "one ", "two ", last=True),
        rewind("a", "one", " "),
        append("a", "2", last=True),
    )
    assert parts(snapshot) == [part_pb2.Part(text="one 2")]
    assert snapshot.task.artifacts[0].name == "shortened"


def test_a_question_moves_to_the_history_when_the_answer_arrives() -> None:
    turn = event_pb2.Event(
        turn_started=event_pb2.TurnStarted(message=message("blue", "m-2"), turn=2)
    )
    question = status(task_pb2.TASK_STATE_INPUT_REQUIRED, "which colour?")
    before = fold(working(), question)
    assert before.task.status.message == message("which colour?")
    snapshot = fold(working(), question, turn, working())
    assert [entry.parts[0].text for entry in snapshot.task.history] == [
        "hello",
        "which colour?",
        "blue",
    ]
    assert snapshot.turn == 2
    assert not snapshot.task.status.HasField("message")


def test_the_message_of_a_terminal_status_stays_with_it() -> None:
    snapshot = fold(status(task_pb2.TASK_STATE_FAILED, "no", at_s=7))
    assert snapshot.task.status.message == message("no")
    assert snapshot.task.status.timestamp.seconds == 7
    assert len(snapshot.task.history) == 1


def test_metadata_of_statuses_is_merged() -> None:
    first, second = working(), working()
    update_struct(first.status.metadata, {"a": 1, "b": {"x": 1}})
    update_struct(second.status.metadata, {"b": 2})
    assert struct_json(fold(first, second).task.metadata) == {"a": 1, "b": 2}


def test_the_decision_of_the_router_is_in_the_metadata() -> None:
    snapshot = fold(route("math"))
    expected = {
        "agent": "math",
        "confidence": 0.5,
        "reasons": ["tag"],
        "scores": [{"agent": "math", "score": 2, "confidence": 0.5, "reasons": ["tag"]}],
    }
    assert struct_json(snapshot.task.metadata) == {"trunkline/route": expected}
    assert snapshot.routes[0].agent == "math"


def test_of_several_decisions_the_first_is_shown_on_top_and_all_are_steps() -> None:
    decisions = struct_json(fold(route("math"), route("echo"), route("fx")).task.metadata)
    decision = decisions["trunkline/route"]
    assert decision["agent"] == "math"
    assert [step["agent"] for step in decision["steps"]] == ["math", "echo", "fx"]
    assert "steps" not in decision["steps"][0]


def test_a_plan_is_its_latest_revision() -> None:
    steps = [event_pb2.PlanStep(step_id="1", text="add")]
    whole = event_pb2.Event(plan=event_pb2.PlanChanged(plan_id="p", revision=1, steps=steps))
    snapshot = fold(plan_event("p", 1, ["do ", "it"]), whole)
    assert snapshot.plans[0] == snapshot_pb2.PlanInfo(
        plan_id="p",
        revision=1,
        text="do it",
        steps=steps,
        first_sequence=2,
    )
    again = fold(plan_event("p", 1, ["do it"]), whole, plan_event("p", 2, ["other"]))
    assert again.plans[0] == snapshot_pb2.PlanInfo(
        plan_id="p", revision=2, text="other", first_sequence=2
    )


def test_tool_calls_children_and_approvals_have_their_results() -> None:
    events = [tool_started(), child_started(), approval_requested()]
    before = fold(*events)
    assert not before.tool_calls[0].HasField("finished")
    assert not before.children[0].HasField("finished")
    assert not before.approvals[0].HasField("answered")
    after = fold(*events, tool_finished(), child_finished(), approval_answered())
    assert after.tool_calls[0].finished.call_id == "c"
    assert after.tool_calls[0].first_sequence == 2
    assert after.children[0].finished.state == task_pb2.TASK_STATE_COMPLETED
    assert after.approvals[0].answered.decision == event_pb2.APPROVAL_DECISION_APPROVED


def test_a_child_that_is_called_again_runs_again() -> None:
    snapshot = fold(child_started(), child_finished(), child_started())
    assert len(snapshot.children) == 1
    assert not snapshot.children[0].HasField("finished")


def test_an_approval_requested_twice_is_listed_once() -> None:
    snapshot = fold(approval_requested(), approval_requested("m/other"))
    assert [approval.requested.tool for approval in snapshot.approvals] == ["m/other"]


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([append("a", "x")], "before its create"),
        ([begin("a", "x"), begin("a", "y")], "created twice"),
        ([begin("a", "x", last=True), append("a", "y")], "after its close"),
        ([begin("a", "x", last=True), begin("a", "y")], "created twice"),
        ([rewind("a")], "before its create"),
        ([completed(), completed()], "after the task had ended"),
        ([completed(), append("a", "x")], "after the task had ended"),
        ([tool_finished()], "before its start"),
        ([tool_started(), tool_started()], "started twice"),
        ([child_finished()], "before its start"),
        ([approval_answered()], "never requested"),
        ([created()], "must be its creation"),
    ],
)
def test_an_event_sequence_that_breaks_the_contract_is_a_defect(
    events: Events, problem: str
) -> None:
    with pytest.raises(InvalidAgentResponseError, match=problem):
        fold(*events)


def test_a_task_that_was_never_created_is_a_defect() -> None:
    with pytest.raises(InvalidAgentResponseError, match="must be its creation"):
        Fold(TASK).apply(batch([working()]))


def test_events_of_another_task_are_a_defect() -> None:
    with pytest.raises(InvalidAgentResponseError, match="is not of this task"):
        Fold(TASK).apply(batch([created()], task_id="other"))


def test_a_snapshot_does_not_change_with_later_events() -> None:
    task_fold = Fold(TASK)
    task_fold.apply(batch([created(), begin("a", "x"), plan_event("p", 1, ["1"])]))
    before = task_fold.snapshot()
    copy = snapshot_pb2.TaskSnapshot.FromString(before.SerializeToString())
    task_fold.apply(batch([append("a", "y"), plan_event("p", 1, ["2"]), working()], 4))
    assert before == copy
    assert task_fold.sequence == 6


def forwarded(sequence: int, *events: event_pb2.Event, at: int) -> event_pb2.EventBatch:
    origin = event_pb2.Origin(agent="math", task_id="child", first_sequence=at, path=["math"])
    return batch(events, sequence, origin=origin)


def test_events_of_another_task_are_forwarded_once() -> None:
    task_fold = Fold(TASK)
    task_fold.apply(batch([created()]))
    task_fold.apply(forwarded(2, begin("a", "x", "y"), at=4))
    task_fold.apply(forwarded(4, append("a", "z"), at=7))
    assert task_fold.forwarded_sequences == {"child": 7}
    for again in (4, 6, 7):
        other = Fold(TASK, task_fold.snapshot(), forwarded=task_fold.forwarded_sequences)
        with pytest.raises(InvalidAgentResponseError, match="was forwarded twice"):
            other.apply(forwarded(5, append("a", "z"), at=again))
