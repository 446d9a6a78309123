"""Messages between agents, as the code of an agent sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

Payload: TypeAlias = BaseModel | str | Mapping[str, Any]
"""An object of a declared type, plain text, or the fields of a type that is given by name."""
Priority: TypeAlias = Literal["low", "normal", "high"]


@dataclass(frozen=True, slots=True)
class MeshMessage:
    """A message between agents, as it was received or sent."""

    id: str
    correlation_id: str
    """The id of the first message of the conversation."""
    causation_id: str
    """The id of the message that this message answers, or that caused it, if there is one."""
    sender: str
    """The agent, or `user:NAME`. The mesh has checked it."""
    recipient: str
    """The agent, `all`, `broadcast` or `room:NAME`, as the sender wrote it."""
    type: str
    payload: BaseModel | str
    """An object of the type's model. Plain text if the sender gave that, or the JSON of a type that
    is not known here."""
    text: str = ""
    """The payload as text: plain text as it was sent, else JSON."""
    version: int = 1
    """The version of the type."""
    room: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    priority: Priority = "normal"
    created: datetime | None = None
    expires: datetime | None = None
    replay_of: str = ""
    """The id of the message that this message repeats, if it is a repetition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingMessage:
    """A message to send."""

    recipient: str
    payload: Payload
    type: str = ""
    room: str = ""
    priority: Priority | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires_in_s: float | None = None
    key: str = ""
    """Identifies the message among the messages of its turn, which may run again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of a handler that needs more than a payload."""

    payload: Payload
    type: str = ""
    """By default the type of the payload's model, and `answer` for text."""
    recipient: str = ""
    """By default the sender of the message that is answered."""
    room: str = ""
    priority: Priority | None = None
    """By default the priority of the message that is answered."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


HandlerResult: TypeAlias = Payload | Reply | Sequence[BaseModel | str | Reply] | None
"""The result of a handler: an answer, several, or none."""
