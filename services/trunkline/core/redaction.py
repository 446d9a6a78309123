"""Removes addresses and file paths of the mesh from errors that are shown to callers."""

import re
from typing import Final, TypeVar

from trunkline.errors import JournalUnavailableError, PeerError, TrunklineError

ErrorT = TypeVar("ErrorT", bound=TrunklineError)

_HOST: Final = "the agent's host"
# Fields of an error's metadata that may hold an address.
_ADDRESS_FIELDS: Final = frozenset({"address", "operation", "peer", "where"})
_ADDRESS: Final = re.compile(r"\S+:[0-9]+|unix:\S+")
# An address within a text. It is stricter than _ADDRESS, because a text has other colons.
_ADDRESS_IN_TEXT: Final = re.compile(
    r"(?:ipv[46]:)?(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|\[[0-9a-fA-F:.%]+\]):\d+|unix:\S+"
)
_SERVICE: Final = re.compile(r"(the registry|the tool adapter) at \S+")
# The error numbers that operating systems and libraries put into their texts.
_ERRNO: Final = re.compile(r"\[Errno -?[0-9]+\] ?| ?\(-?[0-9]+\)")


def redact_addresses(error: ErrorT) -> ErrorT:
    """Return an error without the addresses and file paths of hosts.

    A caller may be anybody. Logs and traces keep the full error.
    """
    metadata = {
        name: _redact_address(value) if name in _ADDRESS_FIELDS else value
        for name, value in error.metadata().items()
    }
    if isinstance(error, PeerError):
        problem = _ADDRESS_IN_TEXT.sub(_HOST, metadata.get("problem", ""))
        metadata["problem"] = _ERRNO.sub("", problem)
    if isinstance(error, JournalUnavailableError):
        metadata["path"] = f"of {_HOST}"
    return type(error).from_metadata(metadata)


def _redact_address(text: str) -> str:
    if _ADDRESS.fullmatch(text) or text == "this host":
        return _HOST
    return _SERVICE.sub(r"\1", text)
