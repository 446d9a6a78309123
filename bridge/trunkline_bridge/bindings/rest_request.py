"""Which operation of which agent, and of which version, a path of HTTP+JSON names.

A2A v1.0 (§11.3): `{base}[/{tenant}]/message:send` and so on; v0.3: `{base}/v1/message:send`. The
base is the agent's address, `/agents/NAME`, or `/` for the default agent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

from google.protobuf.descriptor import FieldDescriptor
from starlette.types import Scope

from trunkline_bridge.bindings.http_handler import HttpRequest
from trunkline_bridge.edge.http import check_content_type, parse_json_body
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.protocol import V0_3, V1_0
from trunkline_bridge.versions.json_values import Json

# What may be done at a place: A2A's operation for each method of HTTP.
Verbs = Mapping[str, str]

_ALONE: Mapping[str, Mapping[str, Verbs]] = {
    V1_0: {
        "message:send": {"POST": "SendMessage"},
        "message:stream": {"POST": "SendStreamingMessage"},
        "tasks": {"GET": "ListTasks"},
        "extendedAgentCard": {"GET": "GetExtendedAgentCard"},
    },
    V0_3: {
        "message:send": {"POST": "SendMessage"},
        "message:stream": {"POST": "SendStreamingMessage"},
        "card": {"GET": "GetExtendedAgentCard"},
    },
}
_TASK: Verbs = {"GET": "GetTask"}
_OF_A_TASK: Mapping[str, Verbs] = {
    "cancel": {"POST": "CancelTask"},
    # A2A's proto has GET here, and its text POST.
    "subscribe": {"GET": "SubscribeToTask", "POST": "SubscribeToTask"},
}
_CONFIGS: Verbs = {
    "GET": "ListTaskPushNotificationConfigs",
    "POST": "CreateTaskPushNotificationConfig",
}
_CONFIG: Verbs = {
    "GET": "GetTaskPushNotificationConfig",
    "DELETE": "DeleteTaskPushNotificationConfig",
}
_OLD_PREFIX = "v1"
# What no tenant can be called, or its paths would be those of others.
_RESERVED = frozenset({*_ALONE[V1_0], "agents", _OLD_PREFIX, ".well-known"})


class Place(NamedTuple):
    """What a path names."""

    version: str
    """Of A2A: V1_0 or V0_3."""
    verbs: Verbs
    agent: str
    """Whose address the path is below; empty at the default agent's."""
    tenant: str = ""
    task_id: str = ""
    config_id: str = ""


def find_place(scope: Scope) -> Place | None:
    """Return the place that a request's path names; None: no operation has such a path."""
    agent, below = _below_agent(_segments(scope))
    if below[:1] == [_OLD_PREFIX]:
        return _place(V0_3, agent, "", below[1:])
    found = _place(V1_0, agent, "", below)
    if found is None and below and below[0] and below[0] not in _RESERVED:
        return _place(V1_0, agent, below[0], below[1:])
    return found


def _segments(scope: Scope) -> list[str]:
    """A path's parts. They are taken apart before they are decoded: a name may have a slash."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return str(scope["path"]).split("/")[1:]
    return [unquote_to_bytes(part).decode("utf-8", "replace") for part in raw.split(b"/")[1:]]


def _below_agent(segments: list[str]) -> tuple[str, list[str]]:
    agent = ""
    if segments[:1] == ["agents"] and len(segments) > 1:
        agent, segments = segments[1], segments[2:]
        if not agent:
            return "", []
    # An address that ends with a slash, and a path behind it that begins with one.
    if segments[:1] == [""]:
        segments = segments[1:]
    return agent, segments


def _place(version: str, agent: str, tenant: str, segments: Sequence[str]) -> Place | None:
    match segments:
        case [name] if name in _ALONE[version]:
            return Place(version, _ALONE[version][name], agent, tenant)
        case ["tasks", name] if name:
            task_id, _, verb = name.rpartition(":")
            if task_id and verb in _OF_A_TASK:
                return Place(version, _OF_A_TASK[verb], agent, tenant, task_id)
            return Place(version, _TASK, agent, tenant, name)
        case ["tasks", task_id, "pushNotificationConfigs"] if task_id:
            return Place(version, _CONFIGS, agent, tenant, task_id)
        case ["tasks", task_id, "pushNotificationConfigs", config_id] if task_id and config_id:
            return Place(version, _CONFIG, agent, tenant, task_id, config_id)
    return None


# Protobuf has descriptors in Python and in C, and their types have nothing in common.
_Descriptor: TypeAlias = Any

_BOOLEANS = {"true": True, "false": False}


async def read_body(call: HttpRequest) -> Json:
    """Return a body's JSON; none at all is an empty object. WireError: it is something else."""
    # Pages of other sites can't send what isn't declared as JSON; without a body they could.
    if call.body or call.headers.get(b"origin") is not None:
        check_content_type(call.headers)
    if not call.body.strip():
        return {}
    value = await parse_json_body(call.body)
    if not isinstance(value, dict):
        raise invalid_params(("body", "must be a JSON object"))
    return value


def read_query(query: bytes, fields: Iterable[_Descriptor]) -> Json:
    """Return those parameters of a query that are fields of a message, by their names in JSON.

    Lists are given by repeating their name, or with commas. What isn't a field is ignored, and an
    empty value is none. Numbers and times stay texts, as ProtoJSON lets them.

    Raises:
        WireError: a parameter is given more than once, or not in UTF-8; the field is named.
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
            raise invalid_params((field.json_name, "is given more than once"))
        elif field.type == FieldDescriptor.TYPE_BOOL:
            result[field.json_name] = _BOOLEANS.get(text, text)
        else:
            result[field.json_name] = text
    return result


def put_path_field(given: Json, field: _Descriptor, value: str) -> None:
    """Set a field to what the path says. WireError: something else is given for it."""
    for name in {field.json_name, field.name}:
        if given.pop(name, None) not in (None, "", value):
            raise invalid_params((field.json_name, "is not what the path says; leave it out"))
    given[field.json_name] = value


def _decode_query_value(name: str, raw: str) -> str:
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise invalid_params((name, "must be UTF-8, percent-encoded")) from None
