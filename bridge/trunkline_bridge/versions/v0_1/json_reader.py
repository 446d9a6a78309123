"""Turns parameters of A2A v0.1, the original wire, into v1.0's, as `v0_3_input` does."""

import uuid
from typing import NamedTuple

from trunkline_bridge.errors import invalid_params
from trunkline_bridge.versions.json_values import Json
from trunkline_bridge.versions.v0_3 import json_reader as v0_3_input

_ID_BYTES = 500
MEDIA_TYPES = {"text": "text/plain"}
"""v0.1 names kinds of content where later versions have media types."""


class TaskSendParams(NamedTuple):
    """A message that v0.1 sends: to which task, and as SendMessage has it."""

    client_id: str
    params: Json


def convert_send_params(given: object) -> TaskSendParams:
    """Return the parameters of tasks/send and tasks/sendSubscribe."""
    params = require_object(given)
    message = require_object(params.get("message"), "message")
    # Two messages are never one here: v0.1 has no id by which they could be told to be.
    made: Json = {"messageId": str(uuid.uuid4()), **v0_3_input.pick_members(message, ("metadata",))}
    if "role" in message:
        made["role"] = v0_3_input.convert_role(message["role"])
    if "parts" in message:
        made["parts"] = v0_3_input.convert_parts(message["parts"])
    if params.get("sessionId") is not None:
        made["contextId"] = params["sessionId"]
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
    result = {"message": made, "configuration": configuration}
    return TaskSendParams(
        parse_client_id(params), {**result, **v0_3_input.pick_members(params, ("metadata",))}
    )


def convert_history_length(given: Json) -> Json:
    """Return how much history is asked for; in v0.1 it is none unless it is asked for."""
    length = given.get("historyLength")
    return {"historyLength": 0 if length is None else length}


def convert_webhook(given: object) -> Json:
    """Return the webhook of tasks/pushNotification/set, without its task."""
    config = require_object(
        require_object(given).get("pushNotificationConfig"), "pushNotificationConfig"
    )
    return _named(v0_3_input.convert_webhook(config), given)


def _named(webhook: Json, given: object) -> Json:
    """A task of v0.1 has one webhook, which goes by the task's id, the client's: posts need it."""
    return {**webhook, "id": parse_client_id(given)}


def parse_client_id(given: object) -> str:
    """Return the id of a task, which its client has chosen. WireError: it is none."""
    client_id = require_object(given).get("id")
    if not isinstance(client_id, str) or not client_id:
        raise invalid_params(("id", "must be a string that is not empty"))
    if len(client_id.encode("utf-8")) > _ID_BYTES:
        raise invalid_params(("id", f"must not be longer than {_ID_BYTES} bytes"))
    return client_id


def require_object(given: object, name: str = "params") -> Json:
    """Return what must be an object. WireError: it is none."""
    if not isinstance(given, dict):
        raise invalid_params((name, "must be an object"))
    return given
