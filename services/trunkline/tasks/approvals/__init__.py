"""Approvals of calls by people: the question that requests them, and the format of the answers.

A task that needs approvals ends its turn with a question that lists them twice: as text for people,
and for programs as a data part `{"approvals": [{"approvalId", "number", "tool", "arguments",
"path"}, …]}`. The next message answers. In text, each line is one answer:

    approve            yes            approve all     approve 2      approve 1, 3      approve ID
    reject             no             reject all      reject 2 why   reject why        reject ID why
    edit {"n": 1}      edit 2 {"n": 1}                edit ID {"n": 1}

or in data parts `{"approvalId", "decision": "approve" | "reject" | "edit", "arguments", "reason"}`.
The number of an approval counts all requests of the task, so it never changes. A line without a
number or id answers the only pending approval. If a line has another form, the whole text answers
nothing. No I/O.
"""

from trunkline.tasks.approvals.answers import (
    build_answer_message,
    digest_approved_calls,
    is_approval_answer,
    other_text,
    parse_answers,
)
from trunkline.tasks.approvals.approval import (
    Approval,
    ApprovalAnswer,
    ApprovalDecision,
    answers_since,
    approval_task_id,
    check_answer,
    check_same_decision,
    digest_answer,
    digest_call,
    parse_arguments,
    pending_approvals,
    render_arguments,
    render_decision,
)
from trunkline.tasks.approvals.question import (
    accepts_json,
    build_question_parts,
    is_approval_question,
)

__all__ = [
    "Approval",
    "ApprovalAnswer",
    "ApprovalDecision",
    "accepts_json",
    "answers_since",
    "approval_task_id",
    "build_answer_message",
    "build_question_parts",
    "check_answer",
    "check_same_decision",
    "digest_answer",
    "digest_approved_calls",
    "digest_call",
    "is_approval_answer",
    "is_approval_question",
    "other_text",
    "parse_answers",
    "parse_arguments",
    "pending_approvals",
    "render_arguments",
    "render_decision",
]
