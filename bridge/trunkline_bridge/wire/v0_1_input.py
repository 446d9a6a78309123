"""Turns parameters of A2A v0.1, the original wire, into v1.0's, as `v0_3_input` does."""

import uuid
from typing import NamedTuple

from trunkline_bridge.errors import invalid_params
from trunkline_bridge.wire import v0_3_input
from trunkline_bridge.wire.json_values import Json

_ID_BYTES = 500
MODES = {"text": "text/plain"}
"""v0.1 names kinds of content where later versions have media types."""


class Given(NamedTuple):
    """A message that v0.1 sends: to which task, and as SendMessage has it."""

    client_id: str
    params: Json


def send_params(given: object) -> Given:
    """Return the parameters of tasks/send and tasks/sendSubscribe."""
    params = members(given)
    message = members(params.get("message"), "message")
    # Two messages are never one here: v0.1 has no id by which they could be told to be.
    made: Json = {"messageId": str(uuid.uuid4()), **v0_3_input.picked(message, ("metadata",))}
    if "role" in message:
        made["role"] = v0_3_input.role(message["role"])
    if "parts" in message:
        made["parts"] = v0_3_input.parts(message["parts"])
    if params.get("sessionId") is not None:
        made["contextId"] = params["sessionId"]
    configuration = history_params(params)
    modes = params.get("acceptedOutputModes")
    if isinstance(modes, list):
        modes = [MODES.get(mode, mode) if isinstance(mode, str) else mode for mode in modes]
    if modes is not None:
        configuration["acceptedOutputModes"] = modes
    webhook = params.get("pushNotification")
    if webhook is not None:
        config = v0_3_input.webhook(members(webhook, "pushNotification"))
        configuration["taskPushNotificationConfig"] = _named(config, params)
    result = {"message": made, "configuration": configuration}
    return Given(read_id(params), {**result, **v0_3_input.picked(params, ("metadata",))})


def history_params(given: Json) -> Json:
    """Return how much history is asked for; in v0.1 it is none unless it is asked for."""
    length = given.get("historyLength")
    return {"historyLength": 0 if length is None else length}


def webhook_params(given: object) -> Json:
    """Return the webhook of tasks/pushNotification/set, without its task."""
    config = members(members(given).get("pushNotificationConfig"), "pushNotificationConfig")
    return _named(v0_3_input.webhook(config), given)


def _named(webhook: Json, given: object) -> Json:
    """A task of v0.1 has one webhook, which goes by the task's id, the client's: posts need it."""
    return {**webhook, "id": read_id(given)}


def read_id(given: object) -> str:
    """Return the id of a task, which its client has chosen. WireError: it is none."""
    client_id = members(given).get("id")
    if not isinstance(client_id, str) or not client_id:
        raise invalid_params(("id", "must be a string that is not empty"))
    if len(client_id.encode("utf-8")) > _ID_BYTES:
        raise invalid_params(("id", f"must not be longer than {_ID_BYTES} bytes"))
    return client_id


def members(given: object, name: str = "params") -> Json:
    """Return what must be an object. WireError: it is none."""
    if not isinstance(given, dict):
        raise invalid_params((name, "must be an object"))
    return given
