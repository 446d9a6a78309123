"""Messages as requests to agents, and the answers of agents as messages.

A delivery is a task of its recipient. The request's parts are the payload, and its metadata has the
rest of the message, which hosts accept from the mesh's owner only. A reply is an artifact whose
metadata has what the message needs.
"""

from collections.abc import Sequence
from typing import Final

from google.protobuf import json_format, struct_pb2

from trunkline.messaging.store import DeliveryKey, Envelope
from trunkline.tasks.content import ENVELOPE_KEY
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, snapshot_pb2

_PAYLOAD: Final = ("text", "data")
_ANSWER_KINDS: Final = (
    event_pb2.ARTIFACT_KIND_UNSPECIFIED,
    event_pb2.ARTIFACT_KIND_ANSWER,
    event_pb2.ARTIFACT_KIND_SYNTHESIS,
)


def build_request(envelope: Envelope, *, task_id: str) -> message_pb2.Message:
    """Return the request that delivers a message by a task."""
    return message_pb2.Message(
        # Not the id of the message: each attempt is a separate request.
        message_id=f"delivery-{task_id}",
        context_id=envelope.correlation_id,
        role=message_pb2.ROLE_USER,
        parts=[build_part(envelope)],
        metadata=_describe(envelope),
    )


def build_part(envelope: Envelope) -> part_pb2.Part:
    """Return the payload of a message as a part."""
    if envelope.WhichOneof("payload") != "data":
        return part_pb2.Part(text=envelope.text)
    # Without a media type: a handler takes it, whatever the input modes of its agent are.
    part = part_pb2.Part()
    part.data.struct_value.CopyFrom(envelope.data)
    return part


def find_delivered(messages: Sequence[message_pb2.Message]) -> Envelope | None:
    """Return the message between agents that a task delivers; None: it was a request.

    `messages` are those of the task, oldest first: answers of a person may follow the delivery.
    """
    return read_envelope(messages[0].metadata, messages[0].parts) if messages else None


def describe_reply(reply: Envelope) -> struct_pb2.Struct:
    """Return the metadata of an artifact that is a reply."""
    return _describe(reply)


def read_envelope(metadata: struct_pb2.Struct, parts: Sequence[part_pb2.Part]) -> Envelope | None:
    """Return the message in a request or an artifact; None: it is none."""
    if ENVELOPE_KEY not in metadata.fields:
        return None
    fields = metadata.fields[ENVELOPE_KEY].struct_value
    envelope = json_format.ParseDict(
        json_format.MessageToDict(fields), Envelope(), ignore_unknown_fields=True
    )
    for part in parts:
        if part.HasField("data"):
            envelope.data.CopyFrom(part.data.struct_value)
            return envelope
    envelope.text = "".join(part.text for part in parts if part.HasField("text"))
    return envelope


def read_replies(
    snapshot: snapshot_pb2.TaskSnapshot, envelope: Envelope, *, key: DeliveryKey
) -> list[Envelope]:
    """Return the replies of a task that handled a message, in the order of its artifacts.

    The answer of an agent without handlers is one reply of type `answer`. Ids are derived from the
    delivery, so that a repeated one gives the same replies.
    """
    pairs = list(zip(snapshot.task.artifacts, snapshot.artifacts, strict=True))
    replies = [
        reply
        for artifact, _ in pairs
        if (reply := read_envelope(artifact.metadata, artifact.parts)) is not None
    ]
    if not replies and (text := _read_answer(pairs)):
        replies = [Envelope(type="answer", text=text)]
    return _complete(replies, envelope, key)


def read_direct_reply(
    message: message_pb2.Message, envelope: Envelope, *, key: DeliveryKey
) -> list[Envelope]:
    """Return the reply in the answer of an agent that makes no tasks."""
    text = "".join(part.text for part in message.parts if part.HasField("text"))
    return _complete([Envelope(type="answer", text=text)] if text else [], envelope, key)


def _complete(replies: list[Envelope], envelope: Envelope, key: DeliveryKey) -> list[Envelope]:
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


def read_problem(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    """Return the reason why a task failed, or ""."""
    parts = snapshot.task.status.message.parts
    return " ".join(part.text for part in parts if part.HasField("text"))


def _read_answer(
    pairs: Sequence[tuple[artifact_pb2.Artifact, snapshot_pb2.ArtifactInfo]],
) -> str:
    """Return the text of an agent's answer; a synthesis replaces what it combines."""
    kinds = [info.kind for _, info in pairs]
    synthesis = event_pb2.ARTIFACT_KIND_SYNTHESIS
    wanted = (synthesis,) if synthesis in kinds else _ANSWER_KINDS
    texts = (
        "".join(part.text for part in artifact.parts if part.HasField("text"))
        for (artifact, _), kind in zip(pairs, kinds, strict=True)
        if kind in wanted
    )
    return "\n".join(text for text in texts if text)


def _describe(envelope: Envelope) -> struct_pb2.Struct:
    copy = Envelope()
    copy.CopyFrom(envelope)
    for name in _PAYLOAD:
        copy.ClearField(name)
    metadata = struct_pb2.Struct()
    json_format.ParseDict(
        {ENVELOPE_KEY: json_format.MessageToDict(copy, preserving_proto_field_name=True)}, metadata
    )
    return metadata
