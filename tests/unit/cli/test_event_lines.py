"""The lines of `trunkline events` and `watch`: kinds and content of events."""

import pytest

from harness.terminal import read_until, terminal
from trunkline.cli.event_lines import EventDescriber
from trunkline.cli.task_events import fit_terminal
from trunkline.cli.task_view import describe
from trunkline.cli.terminal import write
from trunkline.core.json_values import update_struct
from trunkline.tasks.content import data_part
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, task_pb2

TASK_ID = "k3v9wq2m-00000000000000000000000a"


def describe_all(*events: event_pb2.Event) -> list[str]:
    describer = EventDescriber()
    return [describer.describe(event, TASK_ID) for event in events]


def order(quantity: float) -> event_pb2.Event:
    """Return the request of an approval to order something."""
    event = event_pb2.Event()
    event.approval_requested.approval_id = f"{TASK_ID}.1"
    event.approval_requested.tool = "shop/order"
    update_struct(event.approval_requested.arguments, {"n": quantity, "what": "apples " * 10})
    return event


def test_all_deltas_of_an_artifact_have_its_name() -> None:
    first, more, last = (
        event_pb2.Event(delta=event_pb2.ArtifactDelta(artifact_id="artifact-1")) for _ in range(3)
    )
    first.delta.start.name = "answer"
    first.delta.texts.append("36")
    more.delta.texts.append("0")
    last.delta.last = True
    unnamed = event_pb2.Event(delta=event_pb2.ArtifactDelta(artifact_id="artifact-2"))
    unnamed.delta.start.kind = event_pb2.ARTIFACT_KIND_SYNTHESIS
    assert describe_all(first, more, last, unnamed) == [
        "artifact        answer: 36",
        "artifact        answer: 0",
        "artifact        answer complete",
        "artifact        synthesis",
    ]


def test_artifacts_of_other_tasks_keep_their_names_apart() -> None:
    event = event_pb2.Event(delta=event_pb2.ArtifactDelta(artifact_id="artifact-1"))
    event.delta.start.name = "answer"
    describer = EventDescriber()
    describer.describe(event, TASK_ID)
    event.delta.ClearField("start")
    assert describer.describe(event, "another").split() == ["artifact", "artifact-1"]


def test_calls_say_what_was_called_and_how_it_ended() -> None:
    called, returned, failed = (event_pb2.Event() for _ in range(3))
    called.tool_started.tool = "shop/order"
    update_struct(called.tool_started.arguments, {"n": 1})
    returned.tool_finished.tool = failed.tool_finished.tool = "shop/order"
    returned.tool_finished.summary = "ordered"
    failed.tool_finished.is_error = True
    agent, ended = event_pb2.Event(), event_pb2.Event()
    agent.child_started.agent, agent.child_started.task_id = "math", "t-2"
    ended.child_finished.agent, ended.child_finished.task_id = "math", "t-2"
    ended.child_finished.state = task_pb2.TASK_STATE_COMPLETED
    route, nothing = event_pb2.Event(), event_pb2.Event()
    route.route_decided.agent, route.route_decided.confidence = "math", 0.883
    route.route_decided.reasons.append("tag 'sum'")
    nothing.route_decided.SetInParent()
    assert describe_all(called, returned, failed, agent, ended, route, nothing) == [
        'tool called     shop/order {"n": 1}',
        "tool returned   shop/order: ordered",
        "tool failed     shop/order",
        "agent called    t-2 math",
        "agent ended     t-2 math completed",
        "routed          to math, 88%: tag 'sum'",
        "routed          to no agent",
    ]


def test_the_line_of_an_approval_is_cut_behind_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = describe_all(order(1))
    with terminal(monkeypatch, columns=80) as reader:
        write(f"{fit_terminal(line, order(1))}\n")
        shown = read_until(reader, b"\n").rstrip()
    assert shown.startswith(f'approval asked  {TASK_ID}.1 shop/order {{"')
    assert '"n": 1' in line
    assert "1.0" not in line
    assert (len(shown), shown[-1]) == (80, "…")


def test_the_id_of_an_approval_is_not_cut_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (described,) = describe_all(order(1))
    line = f"  12  +0.123s  a-long-name-of-an-agent  {described}"
    with terminal(monkeypatch, columns=80) as reader:
        write(f"{fit_terminal(line, order(1))}\n")
        shown = read_until(reader, b"\n").rstrip()
    assert shown == f"{line.partition(f'{TASK_ID}.1')[0]}{TASK_ID}.1…"


def test_an_answer_to_an_approval_is_no_question_of_the_task() -> None:
    snapshot = snapshot_pb2.TaskSnapshot(agent="shop")
    snapshot.task.status.state = task_pb2.TASK_STATE_COMPLETED
    snapshot.task.history.add(role=message_pb2.ROLE_USER).parts.add(text="order an apple")
    answer = data_part({"approvalId": f"{TASK_ID}.1", "decision": "approve"})
    snapshot.task.history.add(role=message_pb2.ROLE_USER).parts.append(answer)
    data = data_part({"n": 1})
    snapshot.task.history.add(role=message_pb2.ROLE_USER).parts.append(data)
    questions = [line for line in describe(snapshot) if line.startswith("question")]
    assert questions == ["question  order an apple", 'question  {"n": 1}']
