"""Reads plain text messages by hand: nearly all are, and the general way takes ten times longer."""

from typing import Any, TypeGuard

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import message_pb2

_TEXTS = {"messageId": "message_id", "contextId": "context_id", "taskId": "task_id"}
_MESSAGE = frozenset({*_TEXTS, "role", "parts"})
_CONFIGURATION = frozenset({"returnImmediately", "historyLength", "acceptedOutputModes"})
_PARAMS = frozenset({"message", "configuration"})
# More are read in the general way, which counts them.
_FEW = 100
_INT32 = 2**31


def read_plain_send(params: object) -> a2a_pb2.SendMessageRequest | None:
    """Return the parameters of SendMessage if there is nothing wrong or uncommon about them."""
    if not (_is_object(params, _PARAMS) and _is_plain_message(params.get("message"))):
        return None
    configuration = params.get("configuration", {})
    if not _is_plain_configuration(configuration):
        return None
    given = params["message"]
    request = a2a_pb2.SendMessageRequest()
    message = request.message
    message.role = message_pb2.ROLE_USER
    for name, field in _TEXTS.items():
        if name in given:
            setattr(message, field, given[name])
    for part in given["parts"]:
        message.parts.add(text=part["text"])
    if "configuration" in params:
        _configure(request.configuration, configuration)
    return request


def _configure(made: a2a_pb2.SendMessageConfiguration, given: dict[str, Any]) -> None:
    made.SetInParent()
    if "returnImmediately" in given:
        made.return_immediately = given["returnImmediately"]
    if "historyLength" in given:
        made.history_length = given["historyLength"]
    made.accepted_output_modes.extend(given.get("acceptedOutputModes", ()))


def _is_plain_message(given: object) -> bool:
    return (
        _is_object(given, _MESSAGE)
        and given.get("role") == "ROLE_USER"
        and bool(given.get("messageId"))
        and all(type(given.get(name, "")) is str for name in _TEXTS)
        and _are_plain_parts(given.get("parts"))
    )


def _are_plain_parts(given: object) -> bool:
    return (
        type(given) is list
        and 0 < len(given) <= _FEW
        and all(
            type(part) is dict and len(part) == 1 and type(part.get("text")) is str
            for part in given
        )
    )


def _is_plain_configuration(given: object) -> bool:
    if not _is_object(given, _CONFIGURATION):
        return False
    modes = given.get("acceptedOutputModes", [])
    length = given.get("historyLength", 0)
    return (
        type(given.get("returnImmediately", False)) is bool
        and type(length) is int
        and 0 <= length < _INT32
        and type(modes) is list
        and len(modes) <= _FEW
        and all(type(mode) is str for mode in modes)
    )


def _is_object(given: object, names: frozenset[str]) -> TypeGuard[dict[str, Any]]:
    return type(given) is dict and given.keys() <= names
