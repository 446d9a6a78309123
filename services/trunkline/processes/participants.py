"""Agents behind HTTP or WebSockets on the mesh, from `[participant.NAME]` of the settings."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from trunkline.agents.authoring import FunctionAgent, agent
from trunkline.core.json_values import struct_json
from trunkline.core.settings import ParticipantSettings, Settings
from trunkline.core.small_files import SmallFiles
from trunkline.errors import PeerProtocolError, PeerRefusedError, PeerUnavailableError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.delivered_messages import find_delivered
from trunkline.tasks.messages import Priority, Reply
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import envelope_pb2

if TYPE_CHECKING:
    from trunkline_bridge.api.participants.participant import Participant

_ANY_TYPE = "*"
_PRIORITIES: Mapping[int, Priority] = {
    envelope_pb2.ENVELOPE_PRIORITY_LOW: "low",
    envelope_pb2.ENVELOPE_PRIORITY_NORMAL: "normal",
    envelope_pb2.ENVELOPE_PRIORITY_HIGH: "high",
}


@dataclass(frozen=True, slots=True)
class ParticipantAgent(FunctionAgent):
    """An agent whose turns are exchanges with a participant outside."""

    proxy: "_ParticipantProxy | None" = None

    @property
    def breaker_state(self) -> str:
        """The state of the participant's circuit breaker."""
        return "" if self.proxy is None else self.proxy.breaker_state


def build_participants(settings: Settings) -> Sequence[FunctionAgent]:
    """Make the agents for the participants of the settings. It does not connect to the agents.

    Raises:
        ConfigurationError: a name is not an agent name.
    """
    return [_ParticipantProxy(name, table).agent for name, table in settings.participants.items()]


class _ParticipantProxy:
    """A local agent, and the participant while the agent is served."""

    def __init__(self, name: str, settings: ParticipantSettings) -> None:
        local = agent(
            name=name,
            description=settings.description or f"A participant at {_host(settings.url)}.",
            tags=settings.tags,
            # Repeating is safe: each try has the message's id as its idempotency key.
            repeatable=True,
            routable=bool(settings.description),
            concurrency=settings.concurrency,
        )(self._answer)
        for message_type in settings.types or (_ANY_TYPE,):
            local.handlers.add(name, message_type, self._handle)
        values = {field.name: getattr(local, field.name) for field in fields(FunctionAgent)}
        own = {"lifespan": self._connect, "proxy": self, "kind": "participant"}
        self.agent = ParticipantAgent(**{**values, **own})
        self._settings = settings
        self._participant: Participant | None = None

    @property
    def breaker_state(self) -> str:
        return "closed" if self._participant is None else self._participant.breaker_state

    async def _handle(self, task: TaskContext, _: Any) -> list[Reply]:  # noqa: ANN401
        """Deliver a message, and return the participant's replies to it."""
        envelope = find_delivered(get_turn_runtime(task).snapshot)
        if envelope is None:
            raise PeerProtocolError(task.agent, "the task delivers no message")
        try:
            replies = await self._require().deliver(envelope, waits_for_breaker=True)
        except PeerRefusedError as error:
            await task.reject(str(error))
            return []
        return [_to_reply(reply) for reply in replies]

    async def _answer(self, task: TaskContext) -> str:
        """Send a request of a user or an agent as a message, and return the reply."""
        envelope = envelope_pb2.Envelope(
            envelope_id=f"{task.id}-{task.turn}",
            correlation_id=task.context_id,
            sender=f"user:{task.caller or 'anonymous'}",
            recipient=task.agent,
            type="user_message",
            text=task.text,
        )
        replies = await self._require().deliver(envelope, waits_for_breaker=False)
        return "\n".join(_to_text(reply) for reply in replies)

    def _require(self) -> "Participant":
        if self._participant is None:
            raise PeerUnavailableError(f"agent {self.agent.card.name!r}", "it is not being served")
        return self._participant

    @asynccontextmanager
    async def _connect(
        self, settings: Settings, _files: SmallFiles, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        # Imported here, so that a process without participants does not load an HTTP client.
        from trunkline.mesh.client.breaker import BreakerSettings
        from trunkline_bridge.api.participants.participant import open_participant

        breaker = BreakerSettings.from_settings(settings)
        name = self.agent.card.name
        async with open_participant(name, self._settings, breaker, on_change) as participant:
            self._participant = participant
            on_change()
            yield


def _to_reply(envelope: envelope_pb2.Envelope) -> Reply:
    payload = (
        struct_json(envelope.data) if envelope.WhichOneof("payload") == "data" else envelope.text
    )
    return Reply(
        payload,
        type=envelope.type,
        recipient=envelope.recipient,
        room=envelope.room,
        priority=_PRIORITIES.get(envelope.priority),
        metadata=struct_json(envelope.metadata),
    )


def _to_text(envelope: envelope_pb2.Envelope) -> str:
    if envelope.WhichOneof("payload") == "text":
        return envelope.text
    data = struct_json(envelope.data)
    content = data.get("content")
    return content if isinstance(content, str) else json.dumps(data)


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]
