"""What people say to calls that wait for their approval: read in one place, or not taken at all."""

from typing import Any

import pytest
from google.protobuf import json_format

from trunkline.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    InvalidArgumentError,
)
from trunkline.tasks import approvals
from trunkline.tasks.lifecycle import State
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2

APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
EDITED = event_pb2.APPROVAL_DECISION_EDITED
REJECTED = event_pb2.APPROVAL_DECISION_REJECTED


def asking(count: int, *, answered: tuple[int, ...] = ()) -> snapshot_pb2.TaskSnapshot:
    """A task that asks for so many approvals, some of which are approved already."""
    task = snapshot_pb2.TaskSnapshot()
    for number in range(1, count + 1):
        one = task.approvals.add()
        one.requested.approval_id = f"j-Abc.{number}"
        one.requested.tool = "shop/order"
        one.requested.path.extend(["supervisor", "shop"])
        one.requested.arguments.update({"n": number})
        if number in answered:
            one.answered.approval_id = one.requested.approval_id
            one.answered.decision = APPROVED
    return task


def text(said: str) -> message_pb2.Message:
    return message_pb2.Message(parts=[part_pb2.Part(text=said)])


def data(*values: dict[str, Any]) -> message_pb2.Message:
    message = message_pb2.Message()
    for value in values:
        message.parts.add().data.struct_value.update(value)
    return message


def read(message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot) -> list[tuple[Any, ...]]:
    return [
        (
            int(one.approval_id.rpartition(".")[2]),
            one.decision,
            one.reason or json_format.MessageToDict(one.arguments),
        )
        for one in approvals.parse_answers(message, task)
    ]


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ("approve", [(1, APPROVED, {})]),
        ("Approve.", [(1, APPROVED, {})]),
        (" yes! ", [(1, APPROVED, {})]),
        ("approve 1", [(1, APPROVED, {})]),
        ("approve j-abc.1", [(1, APPROVED, {})]),
        ("approve all", [(1, APPROVED, {})]),
        ("no", [(1, REJECTED, {})]),
        ("reject", [(1, REJECTED, {})]),
        ("reject too dear", [(1, REJECTED, "too dear")]),
        ("reject: too dear", [(1, REJECTED, "too dear")]),
        ("reject j-Abc.1 too dear,\nand too late", [(1, REJECTED, "too dear,\nand too late")]),
        ("reject 7 is too many", [(1, REJECTED, "7 is too many")]),
        ('edit {"n": 2, "of": [null]}', [(1, EDITED, {"n": 2, "of": [None]})]),
        ('edit 1: {"n": 2}', [(1, EDITED, {"n": 2})]),
    ],
)
def test_one_call_is_answered_by_a_word(said: str, answers: list[tuple[Any, ...]]) -> None:
    assert read(text(said), asking(1)) == answers


@pytest.mark.parametrize(
    "said",
    [
        "", "approve 2", "approve it not", "yes, but only one", "what does it cost?", "approved?!x",
        "edit", "edit {", "edit [1]", 'edit {"n": NaN}', "approve\nreject", "approve other.1",
        "approve " * 4000, "edit " + "[" * 5000,
        'edit {"n": 1e999}', 'edit {"n": ' + "9" * 400 + "}", 'edit {"n": "\\ud800"}',
        "edit " + '{"n":' * 40 + "1" + "}" * 40,
    ],
)  # fmt: skip
def test_what_can_be_misunderstood_answers_nothing(said: str) -> None:
    assert read(text(said), asking(1)) == []


@pytest.mark.parametrize(
    ("said", "answers"),
    [
        ("approve", []),
        ("yes", []),
        ("reject too dear", []),
        ("approve all", [(1, APPROVED, {}), (2, APPROVED, {}), (3, APPROVED, {})]),
        ("approve 3, 1", [(3, APPROVED, {}), (1, APPROVED, {})]),
        ("reject 1 and 3 too dear", [(1, REJECTED, "too dear"), (3, REJECTED, "too dear")]),
        ("reject 2 3 are too many", [(2, REJECTED, "3 are too many")]),
        ("approve 2\nreject 1 why", [(2, APPROVED, {}), (1, REJECTED, "why")]),
        ("approve 2\nreject 9 why", []),
        ("approve 1\nreject 1", []),
        ('edit 1, 2 {"n": 1}', []),
    ],
)
def test_of_several_calls_each_is_named(said: str, answers: list[tuple[Any, ...]]) -> None:
    assert read(text(said), asking(3)) == answers


def test_numbers_stay_those_of_all_that_was_asked_for() -> None:
    task = asking(3, answered=(1,))
    assert read(text("approve 2"), task) == [(2, APPROVED, {})]
    assert read(text("approve all"), task) == [(2, APPROVED, {}), (3, APPROVED, {})]
    assert read(text("approve 1"), task) == []
    with pytest.raises(ApprovalAnsweredError, match="it is approved"):
        read(text("reject 1"), task)


def test_a_bare_yes_is_for_a_child_that_asks_something_else() -> None:
    task = asking(1)
    child = task.children.add()
    child.started.task_id = child.finished.task_id = "other"
    child.finished.state = State.TASK_STATE_INPUT_REQUIRED
    child.finished.text = "With cents?"
    assert read(text("yes"), task) == []
    assert read(text("approve"), task) == [(1, APPROVED, {})]


def test_data_answers_by_the_approval_s_id() -> None:
    message = data(
        {"approvalId": "j-Abc.2", "decision": "reject", "reason": "no"},
        {"approvalId": "j-Abc.1", "decision": "edit", "arguments": {"n": 5}},
        {"something": "else"},
    )
    message.parts.add(text="as you like")
    assert read(message, asking(2)) == [(2, REJECTED, "no"), (1, EDITED, {"n": 5})]


@pytest.mark.parametrize(("text", "decision"), [("approve", "reject"), ("reject it", "approve")])
def test_data_that_its_text_contradicts_answers_nothing(text: str, decision: str) -> None:
    message = data({"approvalId": "j-Abc.1", "decision": decision})
    message.parts.add(text=text)
    with pytest.raises(InvalidArgumentError, match="the text contradicts the data"):
        read(message, asking(1))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"approvalId": "j-Abc.9", "decision": "approve"}, ApprovalNotFoundError),
        ({"approvalId": "j-Abc.1", "decision": "perhaps"}, InvalidArgumentError),
        ({"approvalId": "j-Abc.1"}, InvalidArgumentError),
        ({"approvalId": "j-Abc.1", "decision": "edit"}, InvalidArgumentError),
        ({"approvalId": "j-Abc.1", "decision": "edit", "arguments": 1}, InvalidArgumentError),
    ],
)
def test_data_that_answers_wrongly_is_an_error(value: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        read(data(value), asking(1))


def test_the_same_answer_again_is_harmless() -> None:
    task = asking(1, answered=(1,))
    assert read(data({"approvalId": "j-Abc.1", "decision": "approve"}), task) == []
    with pytest.raises(ApprovalAnsweredError):
        read(data({"approvalId": "j-Abc.1", "decision": "reject"}), task)


def test_a_task_that_asks_for_no_approval_reads_none() -> None:
    message = data({"approvalId": "j-Abc.1", "decision": "approve"})
    assert read(message, snapshot_pb2.TaskSnapshot()) == []


def test_the_question_names_path_tool_and_arguments_and_how_to_answer() -> None:
    said, for_programs = approvals.build_question_parts(asking(1).approvals)
    assert said.text == (
        'supervisor → shop: shop/order with {"n": 1} needs your approval (j-Abc.1).\n'
        'Answer "approve", "reject" and why, or "edit" and other arguments as JSON.'
    )
    assert json_format.MessageToDict(for_programs.data) == {
        "approvals": [
            {
                "approvalId": "j-Abc.1",
                "number": 1,
                "tool": "shop/order",
                "arguments": {"n": 1},
                "path": ["supervisor", "shop"],
            }
        ]
    }


def test_a_question_shows_what_would_not_be_seen_and_says_what_is_left_out() -> None:
    task = asking(1)
    requested = task.approvals[0].requested
    requested.arguments.update({"n": "é\u202egnp.exe\u009b31m\u200b"})
    said = approvals.build_question_parts(task.approvals)[0].text
    assert '{"n": "é\\u202egnp.exe\\u009b31m\\u200b"}' in said
    requested.arguments.update({"n": "x" * 2000})
    said = approvals.build_question_parts(task.approvals)[0].text
    assert f"{'x' * 900}" in said
    assert "x… (1,009 more characters) needs your approval" in said


def test_the_question_for_several_numbers_them() -> None:
    said, _ = approvals.build_question_parts(asking(3, answered=(1,)).approvals)
    assert "2 calls need your approval:\n2. " in said.text
    assert '"approve 2", "reject 3"' in said.text
    assert approvals.build_question_parts(asking(1, answered=(1,)).approvals) == []
    (only,) = approvals.build_question_parts(asking(1).approvals, ["text/plain"])
    assert only.HasField("text")


def test_what_else_a_question_says_can_be_told_apart() -> None:
    message = message_pb2.Message(parts=[part_pb2.Part(text="With cents?")])
    assert not approvals.is_approval_question(message)
    message.parts.extend(approvals.build_question_parts(asking(2).approvals))
    assert approvals.is_approval_question(message)
    assert approvals.other_text(message) == "With cents?"


@pytest.mark.parametrize("approval_id", ["", "j-1", "j-1.", "j-1.x", ".1"])
def test_an_id_that_names_no_task_is_unknown(approval_id: str) -> None:
    with pytest.raises(ApprovalNotFoundError):
        approvals.approval_task_id(approval_id)
    assert approvals.approval_task_id("j-1.2.3") == "j-1.2"
