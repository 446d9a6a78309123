"""Converts parameters in the JSON of A2A v0.3 and v0.2 to the JSON of v1.0.

Invalid values remain, and the v1.0 parser reports them. Only values without a v1.0 equivalent raise
a WireError here. `kind` may be missing, or be called `type` as in v0.2's examples.
"""

from collections.abc import Iterable
from typing import cast

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v0_3.json_writer import WRAPPED_DATA_KEY, WRAPPED_VALUE_KEY
from trunkline.core.json_types import JsonValue

_ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
_MESSAGE = ("messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds")
_KINDS = ("text", "file", "data")
_FILE = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}


def convert_send_params(value: object) -> object:
    """Convert parameters of message/send and message/stream to parameters of SendMessage."""
    if not isinstance(value, dict):
        return value
    result: Json = {}
    if "message" in value:
        result["message"] = convert_message(value["message"])
    if value.get("configuration") is not None:
        result["configuration"] = _configuration(value["configuration"])
    if value.get("metadata") is not None:
        result["metadata"] = value["metadata"]
    return result


def convert_get_params(value: object) -> object:
    """Convert the parameters of tasks/get; in v0.3 a history length of 0 means no limit."""
    if isinstance(value, dict) and value.get("historyLength") == 0:
        return {"id": value.get("id")}
    return value


def convert_message(value: object) -> object:
    """Convert a message."""
    if not isinstance(value, dict):
        return value
    if value.get("kind") not in (None, "message"):
        raise invalid_params(("message.kind", "must be message"))
    result = pick_members(value, _MESSAGE)
    if "role" in value:
        result["role"] = convert_role(value["role"])
    if "parts" in value:
        result["parts"] = convert_parts(value["parts"])
    return result


def convert_role(value: JsonValue) -> JsonValue:
    """Convert a role."""
    return _ROLES.get(value, value) if isinstance(value, str) else value


def convert_parts(value: object) -> object:
    """Convert the parts of a message."""
    if not isinstance(value, list):
        return value
    return [_part(part, f"message.parts[{index}]") for index, part in enumerate(value)]


def convert_webhook(value: Json) -> Json:
    """Convert a webhook; of several authentication schemes, v1.0 gets the first."""
    result = pick_members(value, ("id", "url", "token"))
    authentication = value.get("authentication")
    if isinstance(authentication, dict):
        converted = pick_members(authentication, ("credentials",))
        schemes = authentication.get("schemes")
        if schemes is not None:
            converted["scheme"] = schemes[0] if isinstance(schemes, list) and schemes else ""
        result["authentication"] = converted
    elif authentication is not None:
        result["authentication"] = authentication
    return result


def pick_members(value: Json, names: Iterable[str]) -> Json:
    """Return the named members that exist and are not null."""
    return {name: value[name] for name in names if value.get(name) is not None}


def _part(value: object, path: str) -> object:
    if not isinstance(value, dict):
        return value
    kind = value.get("kind") or value.get("type") or next((k for k in _KINDS if k in value), "text")
    if kind == "text":
        result = pick_members(value, ("text",))
    elif kind == "file":
        file = value.get("file")
        if not isinstance(file, dict):
            raise invalid_params((f"{path}.file", "must be an object with bytes or uri"))
        result = {new: file[old] for old, new in _FILE.items() if file.get(old) is not None}
    elif kind == "data":
        return _data_part(value)
    else:
        raise invalid_params((f"{path}.kind", f"must be one of {', '.join(_KINDS)}"))
    return {**result, **pick_members(value, ("metadata",))}


def _data_part(value: Json) -> Json:
    data, metadata = value.get("data"), value.get("metadata")
    if isinstance(metadata, dict) and metadata.get(WRAPPED_DATA_KEY) is True and _is_wrapped(data):
        result: Json = {"data": cast("Json", data)[WRAPPED_VALUE_KEY]}
        metadata = {name: member for name, member in metadata.items() if name != WRAPPED_DATA_KEY}
        return {**result, "metadata": metadata} if metadata else result
    return pick_members(value, ("data", "metadata"))


def _is_wrapped(data: object) -> bool:
    return isinstance(data, dict) and data.keys() == {WRAPPED_VALUE_KEY}


def _configuration(value: object) -> object:
    if not isinstance(value, dict):
        return value
    result = pick_members(value, ("acceptedOutputModes", "historyLength"))
    if result.get("historyLength") == 0:
        # In v0.3 that means no limit.
        del result["historyLength"]
    blocking = value.get("blocking")
    if isinstance(blocking, bool):
        result["returnImmediately"] = not blocking
    elif blocking is not None:
        raise invalid_params(("configuration.blocking", "must be true or false"))
    config = value.get("pushNotificationConfig")
    if config is not None:
        result["taskPushNotificationConfig"] = (
            convert_webhook(config) if isinstance(config, dict) else config
        )
    return result
