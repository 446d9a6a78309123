"""Converts JSON of A2A v0.3 and v0.2 to v1.0's, which one parser then validates.

Invalid values are passed through, so that the v1.0 parser reports them. Only values that have no
v1.0 form are refused here. `kind` may be missing or be called `type`, as in v0.2's examples.
"""

from collections.abc import Iterable
from typing import Any, cast

from trunkline_bridge.errors import invalid_params
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_3.json_writer import WRAPPED_DATA_KEY, WRAPPED_VALUE_KEY

_ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
_MESSAGE = ("messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds")
_KINDS = ("text", "file", "data")
_FILE = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}


def convert_send_params(given: object) -> object:
    """Convert the parameters of message/send and message/stream to those of SendMessage."""
    if not isinstance(given, dict):
        return given
    result: Json = {}
    if "message" in given:
        result["message"] = convert_message(given["message"])
    if given.get("configuration") is not None:
        result["configuration"] = _configuration(given["configuration"])
    if given.get("metadata") is not None:
        result["metadata"] = given["metadata"]
    return result


def convert_get_params(given: object) -> object:
    """Convert the parameters of tasks/get; in v0.3 a history length of 0 means no limit."""
    if isinstance(given, dict) and given.get("historyLength") == 0:
        return {"id": given.get("id")}
    return given


def convert_message(given: object) -> object:
    """Convert a message."""
    if not isinstance(given, dict):
        return given
    if given.get("kind") not in (None, "message"):
        raise invalid_params(("message.kind", "must be message"))
    result = pick_members(given, _MESSAGE)
    if "role" in given:
        result["role"] = convert_role(given["role"])
    if "parts" in given:
        result["parts"] = convert_parts(given["parts"])
    return result


def convert_role(given: Any) -> Any:  # noqa: ANN401  any JSON value
    """Convert a role."""
    return _ROLES.get(given, given) if isinstance(given, str) else given


def convert_parts(given: object) -> object:
    """Convert the parts of a message."""
    if not isinstance(given, list):
        return given
    return [_part(one, f"message.parts[{index}]") for index, one in enumerate(given)]


def convert_webhook(given: Json) -> Json:
    """Convert a webhook; v1.0 has one authentication scheme, so the first one is used."""
    result = pick_members(given, ("id", "url", "token"))
    authentication = given.get("authentication")
    if isinstance(authentication, dict):
        said = pick_members(authentication, ("credentials",))
        schemes = authentication.get("schemes")
        if schemes is not None:
            said["scheme"] = schemes[0] if isinstance(schemes, list) and schemes else ""
        result["authentication"] = said
    elif authentication is not None:
        result["authentication"] = authentication
    return result


def pick_members(given: Json, names: Iterable[str]) -> Json:
    """Return the named members that exist and are not null."""
    return {name: given[name] for name in names if given.get(name) is not None}


def _part(given: object, path: str) -> object:
    if not isinstance(given, dict):
        return given
    kind = given.get("kind") or given.get("type") or next((k for k in _KINDS if k in given), "text")
    if kind == "text":
        result = pick_members(given, ("text",))
    elif kind == "file":
        file = given.get("file")
        if not isinstance(file, dict):
            raise invalid_params((f"{path}.file", "must be an object with bytes or uri"))
        result = {new: file[old] for old, new in _FILE.items() if file.get(old) is not None}
    elif kind == "data":
        return _data_part(given)
    else:
        raise invalid_params((f"{path}.kind", f"must be one of {', '.join(_KINDS)}"))
    return {**result, **pick_members(given, ("metadata",))}


def _data_part(given: Json) -> Json:
    data, metadata = given.get("data"), given.get("metadata")
    if isinstance(metadata, dict) and metadata.get(WRAPPED_DATA_KEY) is True and _is_wrapped(data):
        result: Json = {"data": cast("Json", data)[WRAPPED_VALUE_KEY]}
        metadata = {name: one for name, one in metadata.items() if name != WRAPPED_DATA_KEY}
        return {**result, "metadata": metadata} if metadata else result
    return pick_members(given, ("data", "metadata"))


def _is_wrapped(data: object) -> bool:
    return isinstance(data, dict) and data.keys() == {WRAPPED_VALUE_KEY}


def _configuration(given: object) -> object:
    if not isinstance(given, dict):
        return given
    result = pick_members(given, ("acceptedOutputModes", "historyLength"))
    if result.get("historyLength") == 0:
        # In v0.3 that means no limit.
        del result["historyLength"]
    blocking = given.get("blocking")
    if isinstance(blocking, bool):
        result["returnImmediately"] = not blocking
    elif blocking is not None:
        raise invalid_params(("configuration.blocking", "must be true or false"))
    config = given.get("pushNotificationConfig")
    if config is not None:
        result["taskPushNotificationConfig"] = (
            convert_webhook(config) if isinstance(config, dict) else config
        )
    return result
