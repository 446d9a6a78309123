"""Reads the parameters of requests in the path, the query and the body, which is JSON."""

import re
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes

from google.protobuf.descriptor import FieldDescriptor
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline_bridge.http.handler import HttpRequest
from trunkline_bridge.http.json_decoder import parse_json_body
from trunkline_bridge.http.messages import check_content_type

# Protobuf has descriptors in Python and in C, whose types have nothing in common.
_Descriptor: TypeAlias = Any

_BOOLEANS = {"true": True, "false": False}
# Clients join an address that ends with a slash and a path that begins with one.
_DOUBLE_SLASH = re.compile(r"^(/agents/[^/]+)?//(?!/)")


class _SegmentConvertor(Convertor[str]):
    """One segment of a path, which may contain an encoded slash. See `encode_segments`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


class _TenantConvertor(_SegmentConvertor):
    """A tenant. The first segments of other routes can't be tenants."""

    regex = (
        r"(?!(?:agents|messages|v1|\.well-known|tasks|message:send|message:stream"
        r"|extendedAgentCard)/)[^/]+"
    )


register_url_convertor("segment", _SegmentConvertor())
register_url_convertor("tenant", _TenantConvertor())


def encode_segments(scope: Scope) -> Scope:
    """Return a scope whose path has `%2F` where a segment contains a slash, and `%25` for `%`.

    ASGI servers decode the whole path, so that an encoded slash looks like a separator. The
    convertors of the routes decode the segments again.
    """
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"]
    if raw is None:
        encoded = path.replace("%", "%25")
    elif b"%" in raw:
        encoded = "/".join(map(_encode_segment, raw.split(b"/")))
    else:
        encoded = path
    if "//" in encoded:
        encoded = _DOUBLE_SLASH.sub(r"\1/", encoded)
    return scope if encoded == path else {**scope, "path": encoded}


def _encode_segment(raw: bytes) -> str:
    text = unquote_to_bytes(raw).decode("utf-8", "replace")
    # A `$` in Starlette's patterns also matches before a line end.
    return text.replace("%", "%25").replace("/", "%2F").replace("\n", "%0A")


async def read_body(request: HttpRequest) -> Json:
    """Return the JSON object in a body; an empty body and `null` are an empty object.

    Raises:
        WireError: the body is not a JSON object, or is not declared as JSON.
    """
    # Browsers let pages of other sites send an empty body, so those need the declaration as well.
    if request.body or request.headers.get(b"origin") is not None:
        check_content_type(request.headers)
    if not request.body.strip():
        return {}
    value = await parse_json_body(request.body)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_params(("body", "must be a JSON object"))
    return value


def read_query(
    query: bytes, fields: Collection[_Descriptor], *, refuses_others: bool = False
) -> Json:
    """Return the parameters in a query that are among `fields`, by their JSON names.

    A list repeats its name or has commas. Empty values are ignored, and other parameters unless
    it `refuses_others`. Numbers and times remain strings, which ProtoJSON accepts.

    Raises:
        WireError: a parameter that is not a list is repeated, a value is not UTF-8, or a parameter
            is refused.
    """
    if not query:
        return {}
    known = {name: field for field in fields for name in (field.json_name, field.name)}
    result: Json = {}
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=refuses_others, encoding="latin-1")
    for name, raw in pairs:
        field = known.get(name)
        if field is None:
            if refuses_others:
                raise unknown_field(name, (field.json_name for field in fields))
            continue
        if not raw:
            continue
        text = _decode_query_value(field.json_name, raw)
        if field.is_repeated:
            result.setdefault(field.json_name, []).extend(text.split(","))
        elif field.json_name in result:
            raise invalid_params((field.json_name, "is repeated"))
        elif field.type == FieldDescriptor.TYPE_BOOL:
            result[field.json_name] = _BOOLEANS.get(text, text)
        else:
            result[field.json_name] = text
    return result


def unknown_field(name: str, known: Iterable[str]) -> WireError:
    """Return the error for a parameter or member that does not exist."""
    names = ", ".join(known)
    return invalid_params((name, f"is unknown; there are: {names}" if names else "is unknown"))


def _decode_query_value(name: str, raw: str) -> str:
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise invalid_params((name, "must be UTF-8, percent-encoded")) from None
