"""Checks the JSON of an agent card, and names each wrong field with the right form."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from google.protobuf.descriptor import FieldDescriptor

from trunkline.a2a_client.interfaces import ProtocolBinding
from trunkline.a2a_wire.card_json import REQUIRED_CARD_FIELDS
from trunkline.a2a_wire.json_values import Json
from trunkline.v1 import agent_card_pb2

_MAX_PROBLEMS: Final = 100
_BINDINGS: Final = ", ".join(ProtocolBinding)
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?", re.ASCII)
_MEDIA_TYPE: Final = re.compile(r"[\w.+*-]+/[\w.+*-]+(;.*)?", re.ASCII)
# Types of v0.3, whose members have other names: they are checked by their own rules.
_V0_3_REQUIRED: Final[Mapping[str, str]] = {
    "name": "the agent's name",
    "description": "a sentence about the agent",
    "url": "the URL of the preferred transport",
    "version": "the agent's own version, such as 1.0.0",
    "protocolVersion": "0.3.0",
    "capabilities": 'an object such as {"streaming": true}',
    "defaultInputModes": '["text/plain"]',
    "defaultOutputModes": '["text/plain"]',
    "skills": "a list of skills, each with id, name, description and tags",
}
_V0_3_SKILL: Final = ("id", "name", "description", "tags")
_EXAMPLES: Final[Mapping[str, str]] = {
    "supportedInterfaces": (
        '[{"url": "https://example.com/a2a", "protocolBinding": "JSONRPC", '
        '"protocolVersion": "1.0"}]'
    ),
    "protocolBinding": f"one of {_BINDINGS}, or the URI of another binding",
    "protocolVersion": '"1.0"',
    "url": '"https://example.com/a2a"',
    "version": 'the agent\'s own version, such as "1.0.0"',
    "defaultInputModes": '["text/plain"]',
    "defaultOutputModes": '["text/plain"]',
    "capabilities": '{"streaming": true}',
    "skills": "a list of skills, each with id, name, description and tags",
    "tags": '["search"]',
}
# Members whose form differs between v0.3 and v1.0. A card for both versions may have either form.
_SHARED_MEMBERS: Final = frozenset({"securitySchemes", "security"})


class CardProblem(NamedTuple):
    """A field that breaks A2A."""

    field: str
    """Its path, such as `skills[0].tags`."""
    problem: str
    expected: str
    """A value, or a description of one, that would be right."""


def find_card_problems(card: Json) -> list[CardProblem]:
    """Return what breaks A2A in a card of v1.0, of v0.3 or of both; at most 100 problems.

    Unknown members are allowed, since later versions have more.
    """
    problems: list[CardProblem] = []
    for problem in _check_card(card):
        problems.append(problem)
        if len(problems) == _MAX_PROBLEMS:
            break
    return problems


def _check_card(card: Json) -> Iterator[CardProblem]:
    is_older = "supportedInterfaces" not in card and ("url" in card or "protocolVersion" in card)
    if is_older:
        yield from _check_v0_3(card)
    else:
        yield from _check_message(card, agent_card_pb2.AgentCard.DESCRIPTOR, "")
        yield from _check_interfaces(card)
        yield from _check_requirements(card)
    yield from _check_modes(card)
    yield from _check_skill_ids(card)


def _check_message(value: Any, descriptor: Any, path: str) -> Iterator[CardProblem]:  # noqa: ANN401  any JSON value; descriptors have two types
    if not isinstance(value, dict):
        yield CardProblem(path, f"is {_describe(value)}", "an object")
        return
    required = REQUIRED_CARD_FIELDS.get(descriptor.name, frozenset())
    for field in descriptor.fields:
        name = field.json_name
        where = f"{path}.{name}" if path else name
        member = value.get(name, value.get(field.name))
        if member is None:
            if field.name in required:
                yield CardProblem(where, "is missing", _EXAMPLES.get(name) or _expect(field))
        elif name not in _SHARED_MEMBERS:
            yield from _check_field(member, field, where)


def _check_field(value: Any, field: Any, path: str) -> Iterator[CardProblem]:  # noqa: ANN401
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        if not isinstance(value, dict):
            yield CardProblem(path, f"is {_describe(value)}", "an object")
            return
        entry = message.fields_by_name["value"]
        for key, member in value.items():
            yield from _check_single(member, entry, f"{path}.{key}")
    elif field.is_repeated:
        if not isinstance(value, list):
            expected = _EXAMPLES.get(field.json_name) or f"a list of {_expect(field)}"
            yield CardProblem(path, f"is {_describe(value)}", expected)
            return
        for index, member in enumerate(value):
            yield from _check_single(member, field, f"{path}[{index}]")
    else:
        yield from _check_single(value, field, path)


def _check_single(value: Any, field: Any, path: str) -> Iterator[CardProblem]:  # noqa: ANN401
    message = field.message_type
    if message is not None:
        # Structs have members of any kind.
        if message.full_name.startswith("google.protobuf."):
            if not isinstance(value, dict):
                yield CardProblem(path, f"is {_describe(value)}", "an object")
        else:
            yield from _check_message(value, message, path)
        return
    expected = str if field.type == FieldDescriptor.TYPE_STRING else bool
    if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BOOL):
        return
    if not isinstance(value, expected):
        yield CardProblem(
            path, f"is {_describe(value)}", _EXAMPLES.get(field.json_name) or _expect(field)
        )


def _check_interfaces(card: Json) -> Iterator[CardProblem]:
    interfaces = card.get("supportedInterfaces")
    if not isinstance(interfaces, list):
        return
    if not interfaces:
        yield CardProblem("supportedInterfaces", "is empty", _EXAMPLES["supportedInterfaces"])
    for index, interface in enumerate(interfaces):
        if not isinstance(interface, dict):
            continue
        path = f"supportedInterfaces[{index}]"
        binding, version = interface.get("protocolBinding"), interface.get("protocolVersion")
        if isinstance(binding, str):
            yield from _check_binding(binding, f"{path}.protocolBinding")
        if isinstance(version, str) and not _VERSION.fullmatch(version):
            yield CardProblem(
                f"{path}.protocolVersion", f"is {_describe(version)}", _EXAMPLES["protocolVersion"]
            )
        if isinstance(interface.get("url"), str):
            yield from _check_url(interface["url"], f"{path}.url", binding)


def _check_binding(binding: str, path: str) -> Iterator[CardProblem]:
    if binding not in [*ProtocolBinding] and "://" not in binding:
        yield CardProblem(path, f"is {_describe(binding)}", _EXAMPLES["protocolBinding"])


def _check_url(url: str, path: str, binding: object) -> Iterator[CardProblem]:
    is_grpc = binding == ProtocolBinding.GRPC
    try:
        parts = urlsplit(url if "://" in url or not is_grpc else f"//{url}")
        is_absolute = bool(parts.hostname) and (is_grpc or parts.scheme in ("http", "https"))
        # Reading it checks it.
        _ = parts.port
    except ValueError:
        is_absolute = False
    if not is_absolute:
        expected = '"example.com:443"' if is_grpc else _EXAMPLES["url"]
        yield CardProblem(path, f"is {_describe(url)}, no absolute URL", expected)


def _check_requirements(card: Json) -> Iterator[CardProblem]:
    schemes = card.get("securitySchemes", {})
    if not isinstance(schemes, dict):
        yield CardProblem("securitySchemes", f"is {_describe(schemes)}", "an object")
        return
    requirements = card.get("securityRequirements")
    for index, requirement in enumerate(requirements if isinstance(requirements, list) else ()):
        named = requirement.get("schemes") if isinstance(requirement, dict) else None
        for name in named if isinstance(named, dict) else ():
            if name not in schemes:
                yield CardProblem(
                    f"securityRequirements[{index}].schemes.{name}",
                    "is no scheme of securitySchemes",
                    f"one of {', '.join(schemes)}" if schemes else "a scheme in securitySchemes",
                )


def _check_v0_3(card: Json) -> Iterator[CardProblem]:
    for name, expected in _V0_3_REQUIRED.items():
        if card.get(name) is None:
            yield CardProblem(name, "is missing", expected)
    for name in ("name", "description", "version", "protocolVersion", "url"):
        if not isinstance(card.get(name, ""), str):
            yield CardProblem(name, f"is {_describe(card[name])}", _V0_3_REQUIRED[name])
    yield from _check_v0_3_interfaces(card)
    skills = card.get("skills", [])
    for index, skill in enumerate(skills if isinstance(skills, list) else ()):
        for name in _V0_3_SKILL:
            if not isinstance(skill, dict) or skill.get(name) is None:
                expected = _EXAMPLES.get(name, "a text")
                yield CardProblem(f"skills[{index}].{name}", "is missing", expected)


def _check_v0_3_interfaces(card: Json) -> Iterator[CardProblem]:
    url, transport = card.get("url"), card.get("preferredTransport", "JSONRPC")
    if isinstance(url, str):
        yield from _check_url(url, "url", transport)
    if isinstance(transport, str):
        yield from _check_binding(transport, "preferredTransport")
    else:
        yield CardProblem(
            "preferredTransport", f"is {_describe(transport)}", _EXAMPLES["protocolBinding"]
        )
    others = card.get("additionalInterfaces", [])
    for index, interface in enumerate(others if isinstance(others, list) else ()):
        path = f"additionalInterfaces[{index}]"
        if not isinstance(interface, dict):
            problem = f"is {_describe(interface)}"
            yield CardProblem(path, problem, "an object with url and transport")
            continue
        for name, expected in (("url", _EXAMPLES["url"]), ("transport", _BINDINGS)):
            if not isinstance(interface.get(name), str):
                yield CardProblem(f"{path}.{name}", "is missing or no text", expected)


def _check_modes(card: Json) -> Iterator[CardProblem]:
    for name in ("defaultInputModes", "defaultOutputModes"):
        modes = card.get(name)
        for index, mode in enumerate(modes if isinstance(modes, list) else ()):
            if isinstance(mode, str) and not _MEDIA_TYPE.fullmatch(mode):
                right = '"text/plain"' if mode == "text" else 'a media type such as "text/plain"'
                yield CardProblem(f"{name}[{index}]", f"is {_describe(mode)}", right)


def _check_skill_ids(card: Json) -> Iterator[CardProblem]:
    skills = card.get("skills")
    ids = [
        skill["id"]
        for skill in (skills if isinstance(skills, list) else ())
        if isinstance(skill, dict) and isinstance(skill.get("id"), str)
    ]
    for name, count in Counter(ids).items():
        if count > 1:
            yield CardProblem("skills", f"has {count} skills {_describe(name)}", "unique ids")


def _expect(field: Any) -> str:  # noqa: ANN401  descriptors have two types
    if field.message_type is not None:
        return "an object"
    return "true or false" if field.type == FieldDescriptor.TYPE_BOOL else "a text"


def _describe(value: object) -> str:
    """Return a value for people: short texts and numbers as they are, others by their kind."""
    if isinstance(value, str):
        return repr(value[:100])
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, int | float):
        return "null" if value is None else str(value)
    return "a list" if isinstance(value, list) else "an object"
