"""Decodes JSON from clients: strictly, and within limits of depth and size."""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from trunkline.a2a_wire.errors import PARSE_ERROR, WireError
from trunkline.core.json_types import JsonValue

MAX_VALUES: Final = 50_000
"""Limit of the values in a request. Checking one blocks the event loop for up to 10 µs."""
TOO_MANY_VALUES: Final = f"more than {MAX_VALUES} values; send large data as raw, or by url"
INLINE_PARSE_BYTES: Final = 64 * 1024
"""Bodies up to this size are parsed in the event loop, larger ones in a thread."""
MAX_NESTING: Final = 100
"""Limit of the levels of objects and arrays."""

# Escapes of surrogates (\ud800 to \udfff), which may be unpaired.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# No double has more integer digits, and int() is slow for long texts.
_INTEGER_DIGITS = 309


async def parse_json_body(body: bytes) -> JsonValue:
    """Return the JSON of a body. A large body is parsed in a thread. WireError: it is not JSON."""
    try:
        if len(body) <= INLINE_PARSE_BYTES:
            return decode_json(body)
        return await asyncio.to_thread(decode_json, body)
    except ValueError as error:
        raise WireError(PARSE_ERROR, f"the body is not valid JSON: {error}") from None


def decode_json(body: bytes) -> JsonValue:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: the text is not JSON (RFC 8259), is nested too deeply, or has a value that
            parsers read differently: a repeated name in an object, NaN, a number beyond a double,
            or an unpaired surrogate. The error quotes nothing of the body.
    """
    text = _decode_utf8(body)
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_NESTING} levels") from None
    openings = body.count(b"[") + body.count(b"{")
    if openings > MAX_NESTING and nesting_depth(value) > MAX_NESTING:
        raise ValueError(f"nested deeper than {MAX_NESTING} levels")
    if _SURROGATE.search(body) is not None:
        _check_no_surrogates(value)
    return value


def nesting_depth(value: object) -> int:
    """Return how deeply objects and arrays are nested; 0 for a plain value."""
    return sum(1 for _ in _layers(value))


def has_more_values(value: object, limit: int) -> bool:
    """Return whether objects and arrays contain more than `limit` values."""
    count = 0
    for containers in _layers(value):
        count += sum(map(len, containers))
        if count > limit:
            return True
    return False


def _layers(value: object) -> Iterator[list[dict[str, Any] | list[Any]]]:
    """Yield the objects and arrays of each level, outermost first, without recursion."""
    layer = [value]
    while containers := [item for item in layer if isinstance(item, dict | list)]:
        yield containers
        layer = [
            inner
            for outer in containers
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]


def _decode_utf8(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same name twice")
    return result


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _parse_int(text: str) -> int:
    if len(text) > _INTEGER_DIGITS:
        raise ValueError("a number is too large")
    return int(text)


def _check_no_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string contains an unpaired surrogate") from None


# Built once: building takes longer than decoding a small request.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_build_object,
    parse_constant=_reject_constant,
    parse_float=_parse_float,
    parse_int=_parse_int,
)
