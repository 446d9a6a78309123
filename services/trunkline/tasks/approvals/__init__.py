"""What people say to calls that wait for their approval: how they are asked, and how answers read.

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

from trunkline.tasks.approvals.answers import read_answers
from trunkline.tasks.approvals.approval import (
    Approval,
    ApprovalDecision,
    answers_of,
    check_answer,
    check_same,
    decision_name,
    task_of,
    waiting,
)
from trunkline.tasks.approvals.arguments import plain, shown, written_arguments
from trunkline.tasks.approvals.data import answering, is_answer
from trunkline.tasks.approvals.question import asks_for, question_parts, said_besides

__all__ = [
    "Approval",
    "ApprovalDecision",
    "answering",
    "answers_of",
    "asks_for",
    "check_answer",
    "check_same",
    "decision_name",
    "is_answer",
    "plain",
    "question_parts",
    "read_answers",
    "said_besides",
    "shown",
    "task_of",
    "waiting",
    "written_arguments",
]
