"""Which version of A2A a request says it is in (§3.6): a header or a parameter of the query."""

import re
from collections.abc import Collection, Sequence
from urllib.parse import parse_qs

from trunkline_bridge.edge.caller import ServiceParameters
from trunkline_bridge.errors import VERSION_NOT_SUPPORTED, WireError
from trunkline_bridge.protocol import V0_3

# Patches of a version don't count.
_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?", re.ASCII)
_SHOWN_LENGTH = 20


def parse_version(
    parameters: ServiceParameters, query: bytes = b"", *, served: Collection[str]
) -> str:
    """Return the version that a request names, as major and minor; empty: it names none.

    Raises:
        WireError: it isn't among those that are served.
    """
    given = (parameters.get(b"a2a-version") or _queried(query)).strip()
    if not given or given in served:
        return given
    read = _VERSION.fullmatch(given)
    if read is None or read[1] not in served:
        raise version_not_supported(given, served)
    return read[1]


def check_version(
    parameters: ServiceParameters, query: bytes = b"", *, version: str, is_strict: bool
) -> None:
    """See that a request names the version whose path or package it uses, or none.

    Strictly, one that names none is in v0.3, as the specification has it.

    Raises:
        WireError: it is another one.
    """
    given = parse_version(parameters, query, served=(version,))
    if not given and is_strict and version != V0_3:
        raise version_required((version,))


def version_not_supported(given: str, served: Collection[str]) -> WireError:
    """Return the error for a version that is not served."""
    text = f"A2A version {given[:_SHOWN_LENGTH]!r} is not served here"
    return _error(text, served)


def version_required(served: Collection[str]) -> WireError:
    """Return the error for a request that must name its version, and doesn't."""
    return _error("without A2A-Version this would be A2A 0.3, which has no such method", served)


def _error(text: str, served: Collection[str]) -> WireError:
    said: Sequence[str] = list(served)
    advice = f"; send A2A-Version: {' or '.join(said)}"
    return WireError(VERSION_NOT_SUPPORTED, text + advice, {"supportedVersions": ", ".join(said)})


def _queried(query: bytes) -> str:
    return parse_qs(query.decode("latin-1")).get("A2A-Version", [""])[-1] if query else ""
