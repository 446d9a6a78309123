"""Finds and parses the card of a remote agent, and builds the local agent's card from it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

from google.protobuf.json_format import ParseError

from trunkline.a2a_client.interfaces import Interface, InterfaceSelector
from trunkline.a2a_client.lenient_reader import LeftOutLog
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import CARD_PATH, LEGACY_CARD_PATH, RESUME_EXTENSION, V0_3
from trunkline.a2a_wire.v0_1.json_reader import MEDIA_TYPES
from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import parse_dict
from trunkline.core.names import MAX_NAME_CHARS
from trunkline.core.printable import to_plain_line
from trunkline.v1 import agent_card_pb2

_V0_3_DEFAULT_BINDING: Final = "JSONRPC"
# Limits on the texts of a card.
_NAME_CHARS: Final = 200
_EXAMPLE_CHARS: Final = 500
_DESCRIPTION_CHARS: Final = 2000
_MAX_SKILLS: Final = 100
_MAX_TEXTS: Final = 100
# Lists of a card whose entries are independent of each other.
_OFFERS: Final = ("skills", "supportedInterfaces", "defaultInputModes", "defaultOutputModes")
# v0.3 has these members in another form.
_OTHER_FORMS: Final = frozenset(
    {"securitySchemes", "securityRequirements", "security", "signatures"}
)
_INVALID_NAME_CHARS: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class RemoteCard:
    """The card of a remote agent, and the interface that the client calls."""

    card: agent_card_pb2.AgentCard
    """In the core's data model, with the interfaces of the card's own version."""
    interface: Interface

    @classmethod
    def for_interface(cls, interface: Interface, *, supports_resume: bool = False) -> Self:
        """Return the card of a streaming agent that is known only by an interface."""
        capabilities = agent_card_pb2.AgentCapabilities(streaming=True)
        if supports_resume:
            capabilities.extensions.add(uri=RESUME_EXTENSION)
        return cls(agent_card_pb2.AgentCard(capabilities=capabilities), interface)

    @property
    def supports_streaming(self) -> bool:
        """The card declares streaming."""
        return self.card.capabilities.streaming

    @property
    def supports_resume(self) -> bool:
        """The card declares the resume extension, which also makes messages idempotent by id."""
        return any(
            extension.uri == RESUME_EXTENSION for extension in self.card.capabilities.extensions
        )


def card_url_candidates(url: str) -> tuple[str, ...]:
    """Return the URLs at which an agent's card may be, the most likely first.

    A URL that ends with `.json` is the card's own. Otherwise the card is at a well-known path below
    the agent's URL, or below the host's root.
    """
    parts = urlsplit(url)
    if parts.path.endswith(".json"):
        return (url,)
    base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    bases = dict.fromkeys((base, origin))
    return tuple(base_url + path for base_url in bases for path in (CARD_PATH, LEGACY_CARD_PATH))


def parse_remote_card(
    body: bytes, selector: InterfaceSelector, left_out: LeftOutLog | None = None
) -> RemoteCard:
    """Parse a card and select an interface. ValueError: not a card, or no supported interface.

    Skills, interfaces and media types that can't be read are left out, as are unreadable members of
    a skill. These members only offer something. Capabilities may require something, so unreadable
    capabilities are an error.
    """
    value = read_card_json(body)
    try:
        card = parse_members(_without_unreadable(value, left_out))
    except ValueError:
        raise ValueError("the response is no agent card of any A2A version") from None
    if not card.supported_interfaces:
        card.supported_interfaces.extend(v0_3_interfaces(value, selector.card_url))
    required = [extension.uri for extension in card.capabilities.extensions if extension.required]
    if unknown := [uri for uri in required if uri != RESUME_EXTENSION]:
        raise ValueError(f"it requires extensions that we don't have: {', '.join(unknown)[:200]}")
    return RemoteCard(card, selector.select(card.supported_interfaces))


def read_card_json(body: bytes) -> Json:
    """Return the JSON of a card. ValueError: it is not JSON, or no card of any version."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the response is not JSON, so it is no agent card") from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("the response is no agent card")
    return value


def derive_agent_name(card: agent_card_pb2.AgentCard) -> str:
    """Derive a valid agent name from a card's name; empty if no character can be kept."""
    return _INVALID_NAME_CHARS.sub("-", card.name.lower()).strip("-")[:MAX_NAME_CHARS].strip("-")


def build_local_card(remote: agent_card_pb2.AgentCard, name: str) -> agent_card_pb2.AgentCard:
    """Build the card of the local agent that represents a remote one.

    Interfaces, capabilities, security and signatures are left out: the bridge that serves the local
    agent sets its own. Texts are on one line, limited in length, and have no invisible characters,
    because people and models read them.
    """
    card = agent_card_pb2.AgentCard()
    card.CopyFrom(remote)
    _clean_texts(card)
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
    card.default_input_modes[:] = _media_types(remote.default_input_modes)
    card.default_output_modes[:] = _media_types(remote.default_output_modes)
    if not card.skills:
        card.skills.add(id=name, name=name, description=card.description, tags=[name])
    return card


def _clean_texts(card: agent_card_pb2.AgentCard) -> None:
    card.description = to_plain_line(card.description, _DESCRIPTION_CHARS)
    card.version = to_plain_line(card.version, _NAME_CHARS)
    del card.skills[_MAX_SKILLS:]
    for skill in card.skills:
        skill.id = to_plain_line(skill.id, _NAME_CHARS)
        skill.name = to_plain_line(skill.name, _NAME_CHARS)
        skill.description = to_plain_line(skill.description, _DESCRIPTION_CHARS)
        skill.tags[:] = [to_plain_line(tag, _NAME_CHARS) for tag in skill.tags[:_MAX_TEXTS]]
        skill.examples[:] = [
            to_plain_line(example, _EXAMPLE_CHARS) for example in skill.examples[:_MAX_TEXTS]
        ]


def _media_types(value: Iterable[str]) -> list[str]:
    return [MEDIA_TYPES.get(mode, mode) for mode in value] or ["text/plain"]


def parse_members(value: Json) -> agent_card_pb2.AgentCard:
    """Return a card without the members that v0.3 has in another form, or that no version has.

    Raises:
        ValueError: a member has another form than in v1.0. The text says which.
    """
    known = {name: member for name, member in value.items() if name not in _OTHER_FORMS}
    try:
        return parse_dict(known, agent_card_pb2.AgentCard(), ignore_unknown_fields=True)
    except (ParseError, TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(str(error).partition("\n")[0][:200]) from None


def _without_unreadable(card: Json, left_out: LeftOutLog | None) -> Json:
    """Return a card without the entries of its lists that can't be read."""

    def keep(member: Json, path: str) -> bool:
        if _is_readable(member):
            return True
        if left_out is not None:
            left_out.report(f"card.{path}", "it does not match the A2A schema")
        return False

    result = dict(card)
    for name in _OFFERS:
        if not isinstance(entries := card.get(name), list) or _is_readable({name: entries}):
            continue
        result[name] = readable = []
        for index, entry in enumerate(entries):
            path = f"{name}[{index}]"
            if name == "skills" and isinstance(entry, dict):
                # A skill is used by its id and its name.
                readable_members = {
                    member: value
                    for member, value in entry.items()
                    if member in ("id", "name")
                    or keep({"skills": [{member: value}]}, f"{path}.{member}")
                }
                entry = readable_members
            if keep({name: [entry]}, path):
                readable.append(entry)
    return result


def _is_readable(members: Json) -> bool:
    # Protobuf's parser takes a text for an object without members.
    for name in ("skills", "supportedInterfaces"):
        if not all(isinstance(entry, dict) for entry in members.get(name, ())):
            return False
    try:
        parse_members(members)
    except ValueError:
        return False
    return True


def v0_3_interfaces(value: Json, card_url: str) -> Iterable[agent_card_pb2.AgentInterface]:
    """Yield the interfaces of a card from before v1.0, its main URL first."""
    version = _string_or_empty(value.get("protocolVersion")) or V0_3
    url = _string_or_empty(value.get("url")) or card_url.partition("/.well-known/")[0]
    transport = _string_or_empty(value.get("preferredTransport")) or _V0_3_DEFAULT_BINDING
    addresses = [(url, transport)]
    others = value.get("additionalInterfaces")
    addresses += [
        (_string_or_empty(entry.get("url")), _string_or_empty(entry.get("transport")))
        for entry in (others if isinstance(others, list) else ())
        if isinstance(entry, dict)
    ]
    for address, binding in dict.fromkeys(addresses):
        yield agent_card_pb2.AgentInterface(
            url=address, protocol_binding=binding, protocol_version=version
        )


def _string_or_empty(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
