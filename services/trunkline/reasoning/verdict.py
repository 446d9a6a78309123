"""How a turn of reasoning ends."""

from dataclasses import dataclass
from enum import StrEnum

STATUS_KEY = "trunkline/status"
"""Where a model of ours says the status, in the response metadata of its first chunk."""


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
