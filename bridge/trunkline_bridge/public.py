"""What callers from outside are told of the mesh's errors: what they mean to them, nothing of us.

Where hosts listen and keep their files stands in our logs and traces. What to do next is said in
A2A's words: whoever calls has no command line of ours.
"""

import logging
from collections.abc import Mapping
from typing import Final

from trunkline import errors
from trunkline.disclosure import without_places

logger = logging.getLogger(__name__)

_ADVICE: Final[Mapping[type[errors.TrunklineError], str]] = {
    errors.AgentNotFoundError: "; agents' cards tell their addresses and tenants",
    errors.TaskNotFoundError: "; ask at its agent's address, as the account that began it",
    errors.WebhookNotFoundError: "; create it, or list those that there are",
    # How A2A reads a snapshot.
    errors.CursorExpiredError: (
        " (GetTask, or SubscribeToTask without Last-Event-ID while the task goes on)"
    ),
}


def public(error: errors.TrunklineError) -> tuple[str, dict[str, str]]:
    """Return an error's text and metadata as anybody may read them.

    What is left out is logged.
    """
    inside = error.metadata()
    if isinstance(error, errors.PeerError):
        logger.info("request.peer_failed", extra=inside)
    fields = without_places(error).metadata()
    if isinstance(error, errors.PeerUnavailableError):
        fields["problem"] = _with_advice(fields["problem"])
    text = str(type(error).from_metadata(fields))
    text += next((_ADVICE[cls] for cls in type(error).__mro__ if cls in _ADVICE), "")
    return text, {name: fields[name] for name in inside if name != "path"}


def _with_advice(problem: str) -> str:
    """Say what to do next, where who raised it hasn't; what follows a semicolon is advice."""
    return problem if ";" in problem else f"{problem}; try again in a few seconds"
