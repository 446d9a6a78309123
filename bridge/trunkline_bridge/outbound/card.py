"""A remote agent's card: found, read whatever its version, and made the card of ours."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from google.protobuf import json_format

from trunkline.v1 import agent_card_pb2
from trunkline_bridge.inbound.cards import RESUME_EXTENSION
from trunkline_bridge.inbound.cards.names import CARD_PATH, LEGACY_CARD_PATH
from trunkline_bridge.outbound.interfaces import Choice, Interface
from trunkline_bridge.wire.json_values import Json
from trunkline_bridge.wire.v0_1_input import MODES
from trunkline_bridge.wire.versions import V0_3

_LEGACY_BINDING: Final = "JSONRPC"
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """What a remote agent says of itself."""

    card: agent_card_pb2.AgentCard
    """In the core model, its interfaces those of its own version."""
    interface: Interface
    """The one that we take."""

    @property
    def streams(self) -> bool:
        """It answers with streams."""
        return self.card.capabilities.streaming

    @property
    def resumes(self) -> bool:
        """Its streams can be taken up behind an event; repeated messages are the same one."""
        return any(one.uri == RESUME_EXTENSION for one in self.card.capabilities.extensions)


def card_urls(url: str) -> tuple[str, ...]:
    """Return where the card of an agent may be, the likeliest place first.

    A URL that ends with `.json` is the card's own. Otherwise the card is under the agent's address,
    or of the whole host.
    """
    parts = urlsplit(url)
    if parts.path.endswith(".json"):
        return (url,)
    base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    bases = dict.fromkeys((base, origin))
    return tuple(one + path for one in bases for path in (CARD_PATH, LEGACY_CARD_PATH))


def read_remote_card(body: bytes, choice: Choice) -> RemoteCard:
    """Read a card and choose how its agent is spoken to. ValueError: it can't be."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("what is there is no JSON, and no agent card") from None
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError("what is there is no agent card")
    card = _parse(given)
    if not card.supported_interfaces:
        card.supported_interfaces.extend(_older_interfaces(given, choice.card_url))
    required = [one.uri for one in card.capabilities.extensions if one.required]
    if unknown := [uri for uri in required if uri != RESUME_EXTENSION]:
        raise ValueError(f"it requires extensions that we don't have: {', '.join(unknown)[:200]}")
    return RemoteCard(card, choice.take(card.supported_interfaces))


def name_of(card: agent_card_pb2.AgentCard) -> str:
    """Return what an agent with this card may be called on a mesh; empty: there is nothing."""
    return _NOT_IN_NAMES.sub("-", card.name.lower()).strip("-")[:64].strip("-")


def own_card(remote: agent_card_pb2.AgentCard, name: str) -> agent_card_pb2.AgentCard:
    """Return the card of the mesh's agent that stands for a remote one.

    Where it answers, what its endpoint can do and whom it lets in are the bridge's to say.
    """
    card = agent_card_pb2.AgentCard()
    card.CopyFrom(remote)
    card.name = name
    for field in (
        "supported_interfaces",
        "capabilities",
        "security_schemes",
        "security_requirements",
        "signatures",
    ):
        card.ClearField(field)
    for skill in card.skills:
        skill.ClearField("security_requirements")
    card.default_input_modes[:] = _modes(remote.default_input_modes)
    card.default_output_modes[:] = _modes(remote.default_output_modes)
    if not card.skills:
        card.skills.add(id=name, name=name, description=card.description, tags=[name])
    return card


def _modes(given: Iterable[str]) -> list[str]:
    return [MODES.get(mode, mode) for mode in given] or ["text/plain"]


def _parse(given: Json) -> agent_card_pb2.AgentCard:
    # What v0.3 has under the same name in another shape; none of it is needed.
    known = {
        name: one
        for name, one in given.items()
        if name not in ("securitySchemes", "securityRequirements", "security", "signatures")
    }
    try:
        return json_format.ParseDict(known, agent_card_pb2.AgentCard(), ignore_unknown_fields=True)
    except (json_format.ParseError, TypeError, AttributeError, RecursionError, ValueError):
        raise ValueError("what is there is no agent card that A2A knows") from None


def _older_interfaces(given: Json, card_url: str) -> Iterable[agent_card_pb2.AgentInterface]:
    """The interfaces of a card from before v1.0: its own address first."""
    version = _text(given.get("protocolVersion")) or V0_3
    url = _text(given.get("url")) or card_url.partition("/.well-known/")[0]
    transport = _text(given.get("preferredTransport")) or _LEGACY_BINDING
    found = [(url, transport)]
    others = given.get("additionalInterfaces")
    found += [
        (_text(one.get("url")), _text(one.get("transport")))
        for one in (others if isinstance(others, list) else ())
        if isinstance(one, dict)
    ]
    for address, binding in dict.fromkeys(found):
        yield agent_card_pb2.AgentInterface(
            url=address, protocol_binding=binding, protocol_version=version
        )


def _text(given: Any) -> str:  # noqa: ANN401  any JSON value
    return given if isinstance(given, str) else ""
