"""What of an error may be told to those who asked for something, and may be anybody."""

import re
from typing import Final, TypeVar

from trunkline.errors import JournalUnavailableError, PeerError, TrunklineError

ErrorT = TypeVar("ErrorT", bound=TrunklineError)

_HOST: Final = "the agent's host"
# What may name a place, and what is one: HOST:PORT, or a socket's path.
_PLACES: Final = frozenset({"address", "operation", "peer", "where"})
_ADDRESS: Final = re.compile(r"\S+:[0-9]+|unix:\S+")
# The same within a text, where more has a colon in it.
_WITHIN: Final = re.compile(
    r"(?:ipv[46]:)?(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|\[[0-9a-fA-F:.%]+\]):\d+|unix:\S+"
)
_REGISTRY: Final = re.compile(r"(the registry) at \S+")
# What systems add to their errors for their own programmers.
_ERRNO: Final = re.compile(r"\[Errno -?[0-9]+\] ?| ?\(-?[0-9]+\)")


def redact_addresses(error: ErrorT) -> ErrorT:
    """Return an error as those may read it who asked for something, and may be anybody.

    Where hosts listen and keep their files is said in our logs and traces alone.
    """
    told = {
        name: _outside(value) if name in _PLACES else value
        for name, value in error.metadata().items()
    }
    if isinstance(error, PeerError):
        told["problem"] = _ERRNO.sub("", _WITHIN.sub(_HOST, told.get("problem", "")))
    if isinstance(error, JournalUnavailableError):
        told["path"] = f"of {_HOST}"
    return type(error).from_metadata(told)


def _outside(place: str) -> str:
    if _ADDRESS.fullmatch(place) or place == "this host":
        return _HOST
    return _REGISTRY.sub(r"\1", place)
