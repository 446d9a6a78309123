"""Messages between agents as requests to agents, and the answers of agents as messages.

A delivery is a task of its recipient. Its request's parts are the payload, and its first event has
the rest of the message. A reply is an artifact whose metadata has what the message needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline.core import json_values
from trunkline.core.parts import join_texts
from trunkline.core.task_states import OUTCOME_KEY, StateValue, TaskOutcome, find_outcome
from trunkline.tasks.content import ENVELOPE_KEY, message_text
from trunkline.v1 import (
    artifact_pb2,
    envelope_pb2,
    event_pb2,
    json_pb2,
    message_pb2,
    part_pb2,
    snapshot_pb2,
    task_pb2,
)

_PAYLOAD: Final = ("text", "data")
_ANSWER_KINDS: Final = (
    event_pb2.ARTIFACT_KIND_UNSPECIFIED,
    event_pb2.ARTIFACT_KIND_ANSWER,
    event_pb2.ARTIFACT_KIND_SYNTHESIS,
)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The end of a turn that delivers a message."""

    state: StateValue
    problem: str = ""
    """Why the recipient failed or rejected it."""
    replies: Sequence[envelope_pb2.Envelope] = ()
    """Without what follows from the message that they answer."""


def build_request(envelope: envelope_pb2.Envelope, *, task_id: str) -> message_pb2.Message:
    """Return the request that delivers a message by a task."""
    return message_pb2.Message(
        # Not the id of the message: each attempt is a separate request.
        message_id=f"delivery-{task_id}",
        context_id=envelope.correlation_id,
        role=message_pb2.ROLE_USER,
        parts=[build_part(envelope)],
    )


def build_part(envelope: envelope_pb2.Envelope) -> part_pb2.Part:
    """Return the payload of a message as a part."""
    if envelope.WhichOneof("payload") != "data":
        return part_pb2.Part(text=envelope.text)
    # Without a media type: a handler takes it, whatever the input modes of its agent are.
    part = part_pb2.Part()
    part.data.struct_value.CopyFrom(envelope.data)
    return part


def without_payload(envelope: envelope_pb2.Envelope) -> envelope_pb2.Envelope:
    """Return a copy of a message without its payload."""
    copy = envelope_pb2.Envelope()
    copy.CopyFrom(envelope)
    for name in _PAYLOAD:
        copy.ClearField(name)
    return copy


def find_delivered(task: snapshot_pb2.TaskSnapshot) -> envelope_pb2.Envelope | None:
    """Return the message between agents that a task delivers, unless it handles a request."""
    if not task.HasField("envelope"):
        return None
    envelope = envelope_pb2.Envelope()
    envelope.CopyFrom(task.envelope)
    # Answers of a person may follow the delivery.
    _read_payload(envelope, task.task.history[0].parts)
    return envelope


def describe_reply(reply: envelope_pb2.Envelope) -> json_pb2.Struct:
    """Return the metadata of an artifact that is a reply."""
    fields = json_values.message_to_dict(without_payload(reply), with_proto_names=True)
    return json_values.build_struct({ENVELOPE_KEY: fields})


def read_replies(snapshot: snapshot_pb2.TaskSnapshot) -> list[envelope_pb2.Envelope]:
    """Return the replies of a task that handled a message, in the order of its artifacts.

    The answer of an agent without handlers is one reply of type `answer`.
    """
    pairs = list(zip(snapshot.task.artifacts, snapshot.artifacts, strict=True))
    replies = [reply for artifact, _ in pairs if (reply := _read_reply(artifact)) is not None]
    return replies or build_answer(_read_answer(pairs))


def read_direct_reply(message: message_pb2.Message) -> list[envelope_pb2.Envelope]:
    """Return the reply in the answer of an agent that makes no tasks."""
    return build_answer(join_texts(message.parts))


def build_answer(text: str) -> list[envelope_pb2.Envelope]:
    """Return the reply of an agent without handlers; none without a text."""
    return [envelope_pb2.Envelope(type="answer", text=text)] if text else []


def read_result(snapshot: snapshot_pb2.TaskSnapshot) -> DeliveryResult:
    """Return the result of a task that delivers a message, and whose turn is over."""
    status = snapshot.task.status
    if status.state == task_pb2.TASK_STATE_COMPLETED:
        replies = read_replies(snapshot)
        outcome = find_outcome(status.state, snapshot.task.metadata)
        if outcome is TaskOutcome.PARTIAL:
            for reply in replies:
                json_values.update_struct(reply.metadata, {OUTCOME_KEY: outcome.value})
        return DeliveryResult(status.state, "", replies)
    return DeliveryResult(status.state, message_text(status.message))


def _read_reply(artifact: artifact_pb2.Artifact) -> envelope_pb2.Envelope | None:
    fields = json_values.read_member(artifact.metadata, ENVELOPE_KEY)
    if fields is None:
        return None
    reply = json_values.parse_dict(fields, envelope_pb2.Envelope(), ignore_unknown_fields=True)
    _read_payload(reply, artifact.parts)
    return reply


def _read_payload(envelope: envelope_pb2.Envelope, parts: Sequence[part_pb2.Part]) -> None:
    """Set the payload of a message to the content of the parts that carry it."""
    for part in parts:
        if part.HasField("data"):
            envelope.data.CopyFrom(part.data.struct_value)
            return
    envelope.text = join_texts(parts)


def _read_answer(
    pairs: Sequence[tuple[artifact_pb2.Artifact, snapshot_pb2.ArtifactInfo]],
) -> str:
    """Return the text of an agent's answer; a synthesis replaces what it combines."""
    kinds = [info.kind for _, info in pairs]
    synthesis = event_pb2.ARTIFACT_KIND_SYNTHESIS
    wanted = (synthesis,) if synthesis in kinds else _ANSWER_KINDS
    texts = (
        join_texts(artifact.parts)
        for (artifact, _), kind in zip(pairs, kinds, strict=True)
        if kind in wanted
    )
    return "\n".join(text for text in texts if text)
