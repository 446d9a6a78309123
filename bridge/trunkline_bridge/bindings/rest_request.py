"""Requests over HTTP+JSON: their routes, and the parameters in path, query and body.

A2A v1.0 (§11.3) has `{base}[/{tenant}]/message:send` and so on, v0.3 `{base}/v1/message:send`. The
base is the agent's address: `/agents/NAME`, or `/` for the default agent.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes

from google.protobuf.descriptor import FieldDescriptor
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

from trunkline_bridge.bindings.http_handler import HttpRequest
from trunkline_bridge.edge.http import check_content_type, parse_json_body
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.versions.json_values import Json

# Protobuf has descriptors in Python and in C, whose types have nothing in common.
_Descriptor: TypeAlias = Any

_BOOLEANS = {"true": True, "false": False}
_CONFIGS = "/tasks/{task_id:segment}/pushNotificationConfigs"
# An address that ends with a slash, joined to a path that begins with one.
_DOUBLE_SLASH = re.compile(r"^(/agents/[^/]+)?//(?!/)")

SHARED_ROUTES: Mapping[str, Mapping[str, str]] = {
    "/message:send": {"POST": "SendMessage"},
    "/message:stream": {"POST": "SendStreamingMessage"},
    "/tasks/{task_id:segment}:cancel": {"POST": "CancelTask"},
    # The proto of A2A has GET here, and its text POST.
    "/tasks/{task_id:segment}:subscribe": {"GET": "SubscribeToTask", "POST": "SubscribeToTask"},
    "/tasks/{task_id:segment}": {"GET": "GetTask"},
    _CONFIGS: {
        "GET": "ListTaskPushNotificationConfigs",
        "POST": "CreateTaskPushNotificationConfig",
    },
    f"{_CONFIGS}/{{config_id:segment}}": {
        "GET": "GetTaskPushNotificationConfig",
        "DELETE": "DeleteTaskPushNotificationConfig",
    },
}
"""The operation of each path and HTTP method, in every version. The first route that fits wins."""


class PathParams(NamedTuple):
    """The names in a path; an absent one is empty."""

    agent: str = ""
    tenant: str = ""
    task_id: str = ""
    config_id: str = ""


class _SegmentConvertor(Convertor[str]):
    """One segment of a path, which may contain an encoded slash. See `encode_segments`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value)

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


class _TenantConvertor(_SegmentConvertor):
    """A tenant. No tenant has the name of another first segment, or their paths would clash."""

    regex = (
        r"(?!(?:agents|v1|\.well-known|tasks|message:send|message:stream|extendedAgentCard)/)[^/]+"
    )


register_url_convertor("segment", _SegmentConvertor())
register_url_convertor("tenant", _TenantConvertor())


def encode_segments(scope: Scope) -> Scope:
    """Return a scope whose path has `%2F` where a segment contains a slash, and `%25` for `%`.

    ASGI decodes the path as a whole, which would make a slash in a name a separator. The
    convertors of the routes decode the segments.
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
    # Starlette's patterns take a line end for the end of the path.
    return text.replace("%", "%25").replace("/", "%2F").replace("\n", "%0A")


async def read_body(request: HttpRequest) -> Json:
    """Return the JSON object in a body, empty for an empty body. WireError: there is none."""
    # Browsers let pages of other sites send requests without a body: they need the declaration.
    if request.body or request.headers.get(b"origin") is not None:
        check_content_type(request.headers)
    if not request.body.strip():
        return {}
    value = await parse_json_body(request.body)
    if not isinstance(value, dict):
        raise invalid_params(("body", "must be a JSON object"))
    return value


def read_query(query: bytes, fields: Iterable[_Descriptor]) -> Json:
    """Return the parameters in a query that are fields of a message, by their JSON names.

    Lists repeat their name or use commas. Other parameters and empty values are ignored. Numbers
    and times remain strings, which ProtoJSON accepts.

    Raises:
        WireError: a parameter is repeated or not UTF-8; the error names the field.
    """
    if not query:
        return {}
    known = {name: field for field in fields for name in (field.json_name, field.name)}
    result: Json = {}
    for name, raw in parse_qsl(query.decode("latin-1"), encoding="latin-1"):
        field = known.get(name)
        if field is None:
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


def put_path_field(params: Json, field: _Descriptor, value: str) -> None:
    """Set a field to its value in the path. WireError: the parameters have another value."""
    for name in {field.json_name, field.name}:
        if params.pop(name, None) not in (None, "", value):
            raise invalid_params((field.json_name, "is not what the path says; leave it out"))
    params[field.json_name] = value


def _decode_query_value(name: str, raw: str) -> str:
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise invalid_params((name, "must be UTF-8, percent-encoded")) from None
