"""Converts between envelopes of the contract and the messages that agents see."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, cast

from pydantic import BaseModel

from trunkline.core.json_values import build_struct, struct_json
from trunkline.errors import InvalidArgumentError
from trunkline.messages.store import DeliveryKey, Envelope
from trunkline.messages.types import TYPES
from trunkline.tasks.messages import MeshMessage, Payload, Priority, Reply
from trunkline.v1 import envelope_pb2

_PRIORITIES: Final[Mapping[str, envelope_pb2.EnvelopePriority.ValueType]] = {
    "low": envelope_pb2.ENVELOPE_PRIORITY_LOW,
    "normal": envelope_pb2.ENVELOPE_PRIORITY_NORMAL,
    "high": envelope_pb2.ENVELOPE_PRIORITY_HIGH,
}
_PRIORITY_NAMES: Final = {value: name for name, value in _PRIORITIES.items()}


def build_envelope(  # noqa: PLR0913  the fields of a message, each by name
    payload: Payload,
    *,
    recipient: str,
    type: str = "",  # noqa: A002  the name of the field
    default_type: Literal["user_message", "answer"] = "user_message",
    room: str = "",
    priority: Priority | None = None,
    metadata: Mapping[str, Any] | None = None,
    expires_in_s: float | None = None,
    id: str = "",  # noqa: A002
    correlation_id: str = "",
) -> Envelope:
    """Return a message to send.

    Raises:
        InvalidArgumentError: the payload's model is not registered, its values are not JSON, it
            does not fit the type, a mapping has no type, or the priority is none.
    """
    envelope = Envelope(
        envelope_id=id,
        correlation_id=correlation_id,
        recipient=recipient,
        type=type,
        room=room,
    )
    if priority is not None:
        if priority not in _PRIORITIES:
            problem = f"is {priority!r}; it must be low, normal or high"
            raise InvalidArgumentError("priority", problem)
        envelope.priority = _PRIORITIES[priority]
    match payload:
        case str():
            envelope.text = payload
            envelope.type = type or default_type
        case BaseModel():
            message_type = TYPES.of_model(payload.__class__)
            if message_type is None:
                problem = f"{payload.__class__.__name__} is no type; declare it by @message_type"
                raise InvalidArgumentError("payload", problem)
            if type and type != message_type.name:
                problem = f"is {type!r}, but the payload is of {message_type.name!r}"
                raise InvalidArgumentError("type", problem)
            envelope.type, envelope.type_version = message_type.name, message_type.version
            _set_struct(envelope, "data", payload.model_dump(mode="json"))
        case _:
            if not type:
                raise InvalidArgumentError("type", "is missing; a mapping needs one")
            _set_struct(envelope, "data", payload)
    if metadata:
        _set_struct(envelope, "metadata", metadata)
    if expires_in_s is not None:
        envelope.expire_time.FromDatetime(datetime.now(UTC) + timedelta(seconds=expires_in_s))
    TYPES.validate(envelope)
    return envelope


def build_reply(result: Payload | Reply) -> Envelope:
    """Return the message for an answer of a handler. Raises as `build_envelope`."""
    reply = result if isinstance(result, Reply) else Reply(result)
    return build_envelope(
        reply.payload,
        recipient=reply.recipient,
        type=reply.type,
        default_type="answer",
        room=reply.room,
        priority=reply.priority,
        metadata=reply.metadata,
    )


def read_message(envelope: Envelope) -> MeshMessage:
    """Return the message that an agent sees.

    Raises:
        InvalidArgumentError: the payload does not fit its type.
    """
    return MeshMessage(
        id=envelope.envelope_id,
        correlation_id=envelope.correlation_id,
        causation_id=envelope.causation_id,
        sender=envelope.sender,
        recipient=envelope.recipient,
        type=envelope.type,
        payload=TYPES.validate(envelope),
        text=read_text(envelope),
        version=TYPES.resolve(envelope.type, envelope.type_version),
        room=envelope.room,
        metadata=(struct_json(envelope.metadata)),
        priority=cast("Priority", _PRIORITY_NAMES.get(envelope.priority, "normal")),
        created=envelope.create_time.ToDatetime(tzinfo=UTC),
        expires=(
            envelope.expire_time.ToDatetime(tzinfo=UTC)
            if envelope.HasField("expire_time")
            else None
        ),
        replay_of=envelope.replay_of,
    )


def complete_replies(
    replies: Sequence[Envelope], envelope: Envelope, key: DeliveryKey
) -> Sequence[Envelope]:
    """Complete the replies of a recipient by ids, conversation and recipients; return them.

    Ids are derived from the delivery, so that a repeated delivery has the same replies.
    """
    for number, reply in enumerate(replies, start=1):
        reply.envelope_id = f"{key.envelope_id}.{key.recipient}.{number}"[-128:]
        reply.causation_id = envelope.envelope_id
        reply.correlation_id = envelope.correlation_id
        reply.recipient = reply.recipient or envelope.sender
        reply.room = reply.room or envelope.room
        reply.is_reply = True
        if not reply.priority:
            reply.priority = envelope.priority
    return replies


def read_text(envelope: Envelope) -> str:
    """Return the payload of a message: plain text, or data as JSON."""
    if envelope.WhichOneof("payload") != "data":
        return envelope.text
    return json.dumps(struct_json(envelope.data), ensure_ascii=False)


def _set_struct(envelope: Envelope, name: Literal["data", "metadata"], values: Any) -> None:  # noqa: ANN401  JSON
    try:
        struct = build_struct(values)
    except ValueError as error:
        raise InvalidArgumentError(name, str(error)) from None
    getattr(envelope, name).CopyFrom(struct)
