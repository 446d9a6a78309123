"""Approvals of calls by people: the question that asks for them, and the format of the answers.

A task that waits for approvals ends its turn with a question that holds them twice, for people and
for programs: as text, and as a data part `{"approvals": [{"approvalId", "number", "tool",
"arguments", "path"}, …]}`. The next message answers, in text, a line for each answer:

    approve            yes            approve all     approve 2      approve 1, 3      approve ID
    reject             no             reject all      reject 2 why   reject why        reject ID why
    edit {"n": 1}      edit 2 {"n": 1}                edit ID {"n": 1}

or in data parts `{"approvalId", "decision": "approve" | "reject" | "edit", "arguments", "reason"}`.
A number is an approval's place among all that the task has asked for, so it never comes to mean
another one. A line without one is for the only approval that waits. A text with a line that is
none of these answers nothing. Pure.
"""

from trunkline.tasks.approvals.answers import (
    build_answer_message,
    is_approval_answer,
    parse_answers,
)
from trunkline.tasks.approvals.approval import (
    Approval,
    ApprovalAnswer,
    ApprovalDecision,
    answers_since,
    approval_task_id,
    arguments_to_dict,
    check_answer,
    check_same_decision,
    parse_arguments,
    pending_approvals,
    render_arguments,
    render_decision,
)
from trunkline.tasks.approvals.question import (
    build_question_parts,
    is_approval_question,
    other_text,
)

__all__ = [
    "Approval",
    "ApprovalAnswer",
    "ApprovalDecision",
    "answers_since",
    "approval_task_id",
    "arguments_to_dict",
    "build_answer_message",
    "build_question_parts",
    "check_answer",
    "check_same_decision",
    "is_approval_answer",
    "is_approval_question",
    "other_text",
    "parse_answers",
    "parse_arguments",
    "pending_approvals",
    "render_arguments",
    "render_decision",
]
