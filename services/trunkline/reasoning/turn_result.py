"""How a turn of reasoning ends, and the tools by which a provider's model says so.

A model that answers just writes its answer, and that streams as it comes. What is no answer it
says by calling one of VERDICT_TOOLS, which are bound beside the agent's own and never run.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trunkline.reasoning.toolbox import build_tool_spec, object_schema

STATUS_KEY: Final = "trunkline/status"
"""Where a model of ours says the status, in the response metadata of its first chunk."""

ASK_USER: Final = "ask_user"
GIVE_UP: Final = "give_up"
ASK_USER_PROPERTIES: Final = {
    "question": {"type": "string", "description": "The question, complete and brief."}
}
"""What ASK_USER is called with."""


class ResultStatus(StrEnum):
    """What became of the question."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input_required"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The structured answer. The text of a completed one has been streamed, exactly."""

    status: ResultStatus
    text: str


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
    """Return what the first of a reply's calls to one of VERDICT_TOOLS says; None: there is none.

    Whatever it leaves out is taken for the least: a reason without words still ends the turn.
    """
    for call in calls:
        given = call["args"]
        if call["name"] == ASK_USER:
            asked = str(given.get("question") or "Say more about what you want.")
            return TurnResult(ResultStatus.INPUT_REQUIRED, asked)
        if call["name"] == GIVE_UP:
            reason = str(given.get("reason") or "The model gave up and did not say why.")
            is_mendable = given.get("mendable") is True
            return TurnResult(
                ResultStatus.INPUT_REQUIRED if is_mendable else ResultStatus.ERROR, reason
            )
    return None
