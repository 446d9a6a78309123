"""What callers from outside are told of the mesh's errors: what they mean to them, nothing of us.

Where hosts listen and keep their files stands in our logs and traces. What to do next is said in
A2A's words: whoever calls has no command line of ours.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

from trunkline import errors

logger = logging.getLogger(__name__)

_HOST: Final = "the agent's host"
_ADVICE: Final[Mapping[type[errors.TrunklineError], str]] = {
    errors.AgentNotFoundError: "; agents' cards tell their addresses and tenants",
    errors.TaskNotFoundError: "; ask at its agent's address, as the account that began it",
    errors.WebhookNotFoundError: "; create it, or list those that there are",
    # How A2A reads a snapshot.
    errors.CursorExpiredError: (
        " (GetTask, or SubscribeToTask without Last-Event-ID while the task goes on)"
    ),
}
# What may name a place, and what is one: HOST:PORT, or a socket's path.
_PLACES: Final = frozenset({"address", "operation", "peer", "where"})
_ADDRESS = re.compile(r"\S+:[0-9]+|unix:\S+")
# The same within a text, where more has a colon in it.
_WITHIN = re.compile(
    r"(?:ipv[46]:)?(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|\[[0-9a-fA-F:.%]+\]):\d+|unix:\S+"
)
_REGISTRY = re.compile(r"(the registry) at \S+")
# What systems add to their errors for their own programmers.
_ERRNO = re.compile(r"\[Errno -?[0-9]+\] ?| ?\(-?[0-9]+\)")


def public(error: errors.TrunklineError) -> tuple[str, dict[str, str]]:
    """Return an error's text and metadata as anybody may read them.

    What is left out is logged.
    """
    inside = error.metadata()
    fields = {name: _outside(value) if name in _PLACES else value for name, value in inside.items()}
    if isinstance(error, errors.PeerError):
        logger.info("request.peer_failed", extra=inside)
        fields["problem"] = _WITHIN.sub(_HOST, fields.get("problem", ""))
    match error:
        case errors.PeerUnavailableError():
            fields["problem"] = _with_advice(fields["problem"])
        case errors.JournalUnavailableError():
            fields["path"] = f"of {_HOST}"
    text = str(type(error).from_metadata(fields))
    text += next((_ADVICE[cls] for cls in type(error).__mro__ if cls in _ADVICE), "")
    return text, {name: fields[name] for name in inside if name != "path"}


def _outside(place: str) -> str:
    if _ADDRESS.fullmatch(place) or place == "this host":
        return _HOST
    return _REGISTRY.sub(r"\1", place)


def _with_advice(problem: str) -> str:
    """Say what to do next, where who raised it hasn't; what follows a semicolon is advice."""
    problem = _ERRNO.sub("", problem)
    return problem if ";" in problem else f"{problem}; try again in a few seconds"
