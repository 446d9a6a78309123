"""Answers to waiting approvals are parsed unambiguously, or not at all."""

from typing import Any

import pytest

from trunkline.core.json_values import message_to_dict, update_struct
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


def task_with_approvals(count: int, *, answered: tuple[int, ...] = ()) -> snapshot_pb2.TaskSnapshot:
    """Return a task with this number of approval requests, some of them approved already."""
    task = snapshot_pb2.TaskSnapshot()
    for number in range(1, count + 1):
        approval = task.approvals.add()
        approval.requested.approval_id = f"j-Abc.{number}"
        approval.requested.tool = "shop/order"
        approval.requested.path.extend(["supervisor", "shop"])
        update_struct(approval.requested.arguments, {"n": number})
        if number in answered:
            approval.answered.approval_id = approval.requested.approval_id
            approval.answered.decision = APPROVED
    return task


def text(answer_text: str) -> message_pb2.Message:
    return message_pb2.Message(parts=[part_pb2.Part(text=answer_text)])


def data(*values: dict[str, Any]) -> message_pb2.Message:
    message = message_pb2.Message()
    for value in values:
        update_struct(message.parts.add().data.struct_value, value)
    return message


def parse(message: message_pb2.Message, task: snapshot_pb2.TaskSnapshot) -> list[tuple[Any, ...]]:
    return [
        (
            int(answer.approval_id.rpartition(".")[2]),
            answer.decision,
            answer.reason or message_to_dict(answer.arguments),
        )
        for answer in approvals.parse_answers(message, task)
    ]


@pytest.mark.parametrize(
    ("answer_text", "answers"),
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
def test_a_single_call_is_answered_by_a_word(
    answer_text: str, answers: list[tuple[Any, ...]]
) -> None:
    assert parse(text(answer_text), task_with_approvals(1)) == answers


@pytest.mark.parametrize(
    "answer_text",
    [
        "", "approve 2", "approve it not", "yes, but only one", "what does it cost?", "approved?!x",
        "edit", "edit {", "edit [1]", 'edit {"n": NaN}', "approve\nreject", "approve other.1",
        "approve " * 4000, "edit " + "[" * 5000,
        'edit {"n": 1e999}', 'edit {"n": ' + "9" * 400 + "}", 'edit {"n": "\\ud800"}',
        "edit " + '{"n":' * 40 + "1" + "}" * 40,
    ],
)  # fmt: skip
def test_an_ambiguous_text_answers_nothing(answer_text: str) -> None:
    assert parse(text(answer_text), task_with_approvals(1)) == []


@pytest.mark.parametrize(
    ("answer_text", "answers"),
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
def test_several_calls_are_answered_by_number(
    answer_text: str, answers: list[tuple[Any, ...]]
) -> None:
    assert parse(text(answer_text), task_with_approvals(3)) == answers


def test_numbers_count_all_requested_approvals() -> None:
    task = task_with_approvals(3, answered=(1,))
    assert parse(text("approve 2"), task) == [(2, APPROVED, {})]
    assert parse(text("approve all"), task) == [(2, APPROVED, {}), (3, APPROVED, {})]
    assert parse(text("approve 1"), task) == []
    with pytest.raises(ApprovalAnsweredError, match="it is approved"):
        parse(text("reject 1"), task)


def test_a_bare_yes_answers_another_question_of_the_task() -> None:
    task = task_with_approvals(1)
    parts = approvals.build_question_parts(task.approvals)
    task.task.status.message.parts.extend(parts)
    assert parse(text("yes"), task) == [(1, APPROVED, {})]
    task.task.status.message.parts.add(text="May I keep your address?")
    assert parse(text("yes"), task) == []
    assert parse(text("approve"), task) == [(1, APPROVED, {})]


def test_a_bare_yes_answers_the_other_question_of_a_child() -> None:
    task = task_with_approvals(1)
    child = task.children.add()
    child.started.task_id = child.finished.task_id = "other"
    child.finished.state = State.TASK_STATE_INPUT_REQUIRED
    child.finished.text = "With cents?"
    assert parse(text("yes"), task) == []
    assert parse(text("approve"), task) == [(1, APPROVED, {})]


def test_data_answers_by_approval_id() -> None:
    message = data(
        {"approvalId": "j-Abc.2", "decision": "reject", "reason": "no"},
        {"approvalId": "j-Abc.1", "decision": "edit", "arguments": {"n": 5}},
        {"something": "else"},
    )
    message.parts.add(text="as you like")
    assert parse(message, task_with_approvals(2)) == [(2, REJECTED, "no"), (1, EDITED, {"n": 5})]


@pytest.mark.parametrize(("text", "decision"), [("approve", "reject"), ("reject it", "approve")])
def test_data_contradicted_by_its_text_is_an_error(text: str, decision: str) -> None:
    message = data({"approvalId": "j-Abc.1", "decision": decision})
    message.parts.add(text=text)
    with pytest.raises(InvalidArgumentError, match="the text contradicts the data"):
        parse(message, task_with_approvals(1))


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
def test_invalid_answer_data_is_an_error(value: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        parse(data(value), task_with_approvals(1))


def test_a_task_without_approvals_parses_no_answers() -> None:
    message = data({"approvalId": "j-Abc.1", "decision": "approve"})
    assert parse(message, snapshot_pb2.TaskSnapshot()) == []


def test_a_question_escapes_invisible_characters_and_marks_truncation() -> None:
    task = task_with_approvals(1)
    requested = task.approvals[0].requested
    update_struct(requested.arguments, {"n": "é\u202egnp.exe\u009b31m\u200b"})
    answer_text = approvals.build_question_parts(task.approvals)[0].text
    assert '{"n": "é\\u202egnp.exe\\u009b31m\\u200b"}' in answer_text
    update_struct(requested.arguments, {"n": "x" * 2000})
    answer_text = approvals.build_question_parts(task.approvals)[0].text
    assert f"{'x' * 900}" in answer_text
    assert "x… (1,009 more characters) needs your approval" in answer_text


def test_the_question_for_several_numbers_them() -> None:
    answer_text, _ = approvals.build_question_parts(task_with_approvals(3, answered=(1,)).approvals)
    assert "2 calls need your approval:\n2. " in answer_text.text
    assert '"approve 2", "reject 3"' in answer_text.text
    assert approvals.build_question_parts(task_with_approvals(1, answered=(1,)).approvals) == []
    (text_only,) = approvals.build_question_parts(task_with_approvals(1).approvals, ["text/plain"])
    assert text_only.HasField("text")


def test_the_other_text_of_a_question_is_separated() -> None:
    message = message_pb2.Message(parts=[part_pb2.Part(text="With cents?")])
    assert not approvals.is_approval_question(message)
    message.parts.extend(approvals.build_question_parts(task_with_approvals(2).approvals))
    assert approvals.is_approval_question(message)
    assert approvals.other_text(message) == "With cents?"


@pytest.mark.parametrize("approval_id", ["", "j-1", "j-1.", "j-1.x", ".1"])
def test_an_invalid_approval_id_is_unknown(approval_id: str) -> None:
    with pytest.raises(ApprovalNotFoundError):
        approvals.approval_task_id(approval_id)
    assert approvals.approval_task_id("j-1.2.3") == "j-1.2"
