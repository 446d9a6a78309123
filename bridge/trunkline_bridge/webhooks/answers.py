"""What a webhook's receiver answered, and what that means for the notification."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from trunkline_bridge.retry_after import retry_after_s

_GONE: Final = 410
# Those that say when to come again.
_LATER: Final = (429, 503)
_LATEST_S: Final = 3600.0


class Answer(NamedTuple):
    """What a receiver answered."""

    status: int
    retry_after: str = ""
    """The header."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a post."""

    problem: str = ""
    """Empty: it was taken. Else why not, for operators; without content and secrets."""
    failure: str = ""
    """What kind of failure that is, in a word: for the span."""
    is_gone: bool = False
    """The receiver says that it will never take one again."""
    retry_after_s: float = 0.0
    """For so long the receiver wants to be left alone."""


class NoAnswerError(Exception):
    """There was no answer; the text says why, in words that name no address."""


def judge(answer: Answer) -> Outcome:
    """Only 2xx is success; a pause that the receiver asks for is at most an hour."""
    status = answer.status
    if 200 <= status < 300:
        return Outcome()
    problem = f"it answered {status}"
    if 300 <= status < 400:
        problem += "; redirects are not followed"
    pause_s = retry_after_s(answer.retry_after, limit_s=_LATEST_S) if status in _LATER else 0.0
    return Outcome(problem, str(status), status == _GONE, pause_s)
