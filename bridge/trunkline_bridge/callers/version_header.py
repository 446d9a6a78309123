"""Parses the A2A version of a request from its header or query (A2A v1.0, §3.6)."""

import re
from collections.abc import Collection
from urllib.parse import parse_qs

from trunkline.a2a_wire.errors import VERSION_NOT_SUPPORTED, WireError
from trunkline.a2a_wire.protocol import V0_3, VERSION_HEADER
from trunkline_bridge.callers.caller import ServiceParameters

_HEADER = VERSION_HEADER.encode()
# Patch versions are ignored.
_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?", re.ASCII)
_SHOWN_LENGTH = 20


def parse_version(
    parameters: ServiceParameters, query: bytes = b"", *, served: Collection[str]
) -> str:
    """Return the version that a request names as MAJOR.MINOR, or an empty text.

    The header wins over the query.

    Raises:
        WireError: the version is not one of `served`.
    """
    named = _named_version(parameters, query)
    if not named or named in served:
        return named
    match = _VERSION.fullmatch(named)
    if match is None or match[1] not in served:
        raise version_not_supported(named, served)
    return match[1]


def find_version(parameters: ServiceParameters, query: bytes = b"") -> str:
    """Return the version of a request as MAJOR.MINOR, or an empty text if none or malformed."""
    match = _VERSION.fullmatch(_named_version(parameters, query))
    return match[1] if match else ""


def check_version(
    parameters: ServiceParameters, query: bytes = b"", *, version: str, is_strict: bool
) -> None:
    """Check that a request names `version`, or no version.

    With `is_strict`, a request without a version is in v0.3 (A2A v1.0, §3.6).

    Raises:
        WireError: the request is in another version.
    """
    named = parse_version(parameters, query, served=(version,))
    if not named and is_strict and version != V0_3:
        raise version_required((version,))


def version_not_supported(named: str, served: Collection[str]) -> WireError:
    """Return the error for a version that is not served."""
    text = f"A2A version {named[:_SHOWN_LENGTH]!r} is not served here"
    return _error(text, served)


def version_required(served: Collection[str]) -> WireError:
    """Return the error for a request that must name its version."""
    return _error("a request without A2A-Version is A2A 0.3, which has no such method", served)


def _error(text: str, served: Collection[str]) -> WireError:
    advice = f"; send A2A-Version: {' or '.join(served)}"
    return WireError(VERSION_NOT_SUPPORTED, text + advice, {"supportedVersions": ", ".join(served)})


def _named_version(parameters: ServiceParameters, query: bytes) -> str:
    return (parameters.get(_HEADER) or _query_version(query)).strip()


def _query_version(query: bytes) -> str:
    return parse_qs(query.decode("latin-1")).get("A2A-Version", [""])[-1] if query else ""
