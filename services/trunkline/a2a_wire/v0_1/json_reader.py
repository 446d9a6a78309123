"""Converts parameters in the JSON of A2A v0.1 to the JSON of v1.0."""

import uuid
from typing import NamedTuple

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.v0_3 import json_reader as v0_3_input

_ID_BYTES = 500
MEDIA_TYPES = {"text": "text/plain"}
"""Media types by v0.1's names for them."""


class TaskSendParams(NamedTuple):
    """The parameters of tasks/send: the client's task id, and the parameters of SendMessage."""

    client_id: str
    params: Json


def convert_send_params(value: object) -> TaskSendParams:
    """Convert the parameters of tasks/send and tasks/sendSubscribe."""
    params = require_object(value)
    message = require_object(params.get("message"), "message")
    # v0.1 has no message ids, so each message is a new one.
    converted: Json = {
        "messageId": str(uuid.uuid4()),
        **v0_3_input.pick_members(message, ("metadata",)),
    }
    if "role" in message:
        converted["role"] = v0_3_input.convert_role(message["role"])
    if "parts" in message:
        converted["parts"] = v0_3_input.convert_parts(message["parts"])
    if params.get("sessionId") is not None:
        converted["contextId"] = params["sessionId"]
    configuration = convert_history_length(params)
    modes = params.get("acceptedOutputModes")
    if isinstance(modes, list):
        modes = [MEDIA_TYPES.get(mode, mode) if isinstance(mode, str) else mode for mode in modes]
    if modes is not None:
        configuration["acceptedOutputModes"] = modes
    webhook = params.get("pushNotification")
    if webhook is not None:
        config = v0_3_input.convert_webhook(require_object(webhook, "pushNotification"))
        configuration["taskPushNotificationConfig"] = _named(config, params)
    result = {"message": converted, "configuration": configuration}
    return TaskSendParams(
        parse_client_id(params), {**result, **v0_3_input.pick_members(params, ("metadata",))}
    )


def convert_history_length(value: Json) -> Json:
    """Convert the history length; v0.1's default is 0."""
    length = value.get("historyLength")
    return {"historyLength": 0 if length is None else length}


def convert_webhook(value: object) -> Json:
    """Convert the webhook of tasks/pushNotification/set, without its task."""
    config = require_object(
        require_object(value).get("pushNotificationConfig"), "pushNotificationConfig"
    )
    return _named(v0_3_input.convert_webhook(config), value)


def _named(webhook: Json, value: object) -> Json:
    """Set the webhook's id to the client's task id, which its notifications contain.

    A task of v0.1 has only one webhook.
    """
    return {**webhook, "id": parse_client_id(value)}


def parse_client_id(value: object) -> str:
    """Return the task id that the client chose. WireError: it is invalid."""
    client_id = require_object(value).get("id")
    if not isinstance(client_id, str) or not client_id:
        raise invalid_params(("id", "must be a string that is not empty"))
    if len(client_id.encode("utf-8")) > _ID_BYTES:
        raise invalid_params(("id", f"must not be longer than {_ID_BYTES} bytes"))
    return client_id


def require_object(value: object, name: str = "params") -> Json:
    """Return a value that must be an object. WireError: it is not."""
    if not isinstance(value, dict):
        raise invalid_params((name, "must be an object"))
    return value
