"""Answers to approvals are parsed completely or not at all, for any text."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.json_values import update_struct
from trunkline.errors import ApprovalAnsweredError
from trunkline.tasks import approvals
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2

APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
EDITED = event_pb2.APPROVAL_DECISION_EDITED
REJECTED = event_pb2.APPROVAL_DECISION_REJECTED
WORDS = st.sampled_from(
    ["approve", "reject", "edit", "yes", "no", "all", "1", "2", "9", "j-1.1", "and", ",", "{}",
     '{"n": 1}', "\n", "why", ".", "j-1.9"]
)  # fmt: skip


def task_with_approvals(count: int) -> snapshot_pb2.TaskSnapshot:
    task = snapshot_pb2.TaskSnapshot()
    for number in range(1, count + 1):
        requested = task.approvals.add().requested
        requested.approval_id = f"j-1.{number}"
        requested.tool = "shop/order"
    return task


@given(st.one_of(st.text(), st.lists(WORDS).map(" ".join)), st.integers(0, 3))
def test_any_text_gives_at_most_one_answer_to_each_waiting_call(text: str, count: int) -> None:
    task = task_with_approvals(count)
    message = message_pb2.Message(parts=[part_pb2.Part(text=text)])
    answers = approvals.parse_answers(message, task)
    ids = [answer.approval_id for answer in answers]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= {approval.requested.approval_id for approval in task.approvals}
    for answer in answers:
        approvals.check_answer(answer)


@st.composite
def decision_lists(draw: st.DrawFn) -> list[event_pb2.ApprovalAnswered]:
    answers = []
    for number in draw(st.lists(st.integers(1, 5), unique=True, min_size=1)):
        decision = draw(st.sampled_from([APPROVED, EDITED, REJECTED]))
        answer = event_pb2.ApprovalAnswered(approval_id=f"j-1.{number}", decision=decision)
        if decision == EDITED:
            update_struct(answer.arguments, {"n": draw(st.integers(-99, 99))})
        if decision == REJECTED:
            answer.reason = draw(st.text(max_size=9))
        answers.append(answer)
    return answers


@given(decision_lists(), decision_lists())
def test_structured_answers_round_trip_and_apply_once(
    first: list[event_pb2.ApprovalAnswered], second: list[event_pb2.ApprovalAnswered]
) -> None:
    task = task_with_approvals(5)
    message = approvals.build_answer_message(first, message_id="m", task_id="j-1", context_id="c")
    assert approvals.parse_answers(message, task) == first
    for answer in first:
        number = int(answer.approval_id.rpartition(".")[2])
        task.approvals[number - 1].answered.CopyFrom(answer)
    assert approvals.parse_answers(message, task) == []
    message = approvals.build_answer_message(second, message_id="m", task_id="j-1", context_id="c")
    earlier_answers = {earlier_answer.approval_id: earlier_answer for earlier_answer in first}
    contradicts = any(
        (earlier := earlier_answers.get(answer_.approval_id)) is not None
        and (earlier.decision, earlier.arguments) != (answer_.decision, answer_.arguments)
        for answer_ in second
    )
    try:
        parsed = approvals.parse_answers(message, task)
    except ApprovalAnsweredError:
        assert contradicts
    else:
        assert not contradicts
        assert parsed == [
            answer_ for answer_ in second if answer_.approval_id not in earlier_answers
        ]
