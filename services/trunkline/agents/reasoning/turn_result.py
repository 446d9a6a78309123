"""The result of a reasoning turn, and the tools by which a model gives one.

A model answers by writing text, which streams at once. To ask the user or to give up it calls one
of RESULT_TOOLS, which are offered beside the agent's own tools and never run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trunkline.agents.calls.tool_questions import PendingQuestion
from trunkline.agents.reasoning.toolbox import build_tool_spec, object_schema

STATUS_KEY: Final = "trunkline/status"
"""The key of the status in the response metadata of a built-in model's first chunk."""

ASK_USER: Final = "ask_user"
GIVE_UP: Final = "give_up"
ASK_USER_PROPERTIES: Final = {
    "question": {"type": "string", "description": "The question, complete and brief."}
}
"""The parameters of ASK_USER."""


class ResultStatus(StrEnum):
    """The outcome of the question."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input_required"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The structured answer. The text of a completed one has been streamed exactly."""

    status: ResultStatus
    text: str
    questions: Sequence[PendingQuestion] = ()
    """The questions of tools that wait for an answer."""


RESULT_TOOLS: Final = (
    build_tool_spec(
        ASK_USER,
        "Ask the user for what is missing, where the question can't be answered without it.",
        object_schema(ASK_USER_PROPERTIES),
    ),
    build_tool_spec(
        GIVE_UP,
        "Say that there will be no answer: your tools failed, or can't do this.",
        object_schema(
            {
                "reason": {"type": "string", "description": "What is wrong, for the user."},
                "mendable": {
                    "type": "boolean",
                    "description": "Whether the user can mend it by asking otherwise.",
                },
            }
        ),
    ),
)


def find_result_call(calls: list[Any]) -> TurnResult | None:
    """Return the result of the first call to one of RESULT_TOOLS, if there is such a call.

    Missing arguments get defaults, so a call without a reason still ends the turn.
    """
    for call in calls:
        arguments = call["args"]
        if call["name"] == ASK_USER:
            question = str(arguments.get("question") or "Say more about what you want.")
            return TurnResult(ResultStatus.INPUT_REQUIRED, question)
        if call["name"] == GIVE_UP:
            reason = str(arguments.get("reason") or "The model gave up and did not say why.")
            is_mendable = arguments.get("mendable") is True
            return TurnResult(
                ResultStatus.INPUT_REQUIRED if is_mendable else ResultStatus.ERROR, reason
            )
    return None
