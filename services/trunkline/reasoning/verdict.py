"""How a turn of reasoning ends, and the tools by which a provider's model says so.

A model that answers just writes its answer, and that streams as it comes. What is no answer it
says by calling one of VERDICT_TOOLS, which are bound beside the agent's own and never run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

STATUS_KEY: Final = "trunkline/status"
"""Where a model of ours says the status, in the response metadata of its first chunk."""

ASK_USER: Final = "ask_user"
GIVE_UP: Final = "give_up"


class Status(StrEnum):
    """What became of the question."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input_required"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The structured answer. The text of a completed one has been streamed, exactly."""

    status: Status
    text: str


def _spec(
    name: str, description: str, properties: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


VERDICT_TOOLS: Final = (
    _spec(
        ASK_USER,
        "Ask the user for what is missing, where the question can't be answered without it.",
        {"question": {"type": "string", "description": "The question, complete and brief."}},
    ),
    _spec(
        GIVE_UP,
        "Say that there will be no answer: your tools failed, or can't do this.",
        {
            "reason": {"type": "string", "description": "What is wrong, for the user."},
            "mendable": {
                "type": "boolean",
                "description": "Whether the user can mend it by asking otherwise.",
            },
        },
    ),
)
"""In the shape in which every provider's chat model takes tools."""


def called_verdict(calls: list[Any]) -> Verdict | None:
    """Return what the first of a reply's calls to one of VERDICT_TOOLS says; None: there is none.

    Whatever it leaves out is taken for the least: a reason without words still ends the turn.
    """
    for call in calls:
        given = call["args"]
        if call["name"] == ASK_USER:
            asked = str(given.get("question") or "Say more about what you want.")
            return Verdict(Status.INPUT_REQUIRED, asked)
        if call["name"] == GIVE_UP:
            reason = str(given.get("reason") or "The model gave up and did not say why.")
            is_mendable = given.get("mendable") is True
            return Verdict(Status.INPUT_REQUIRED if is_mendable else Status.ERROR, reason)
    return None
