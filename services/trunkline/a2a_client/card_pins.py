"""Pins of remote agents: the parts of a card that decide who gets our messages, at first use.

The first card of an agent is trusted. A later card that differs is a drift, which is reported or
refused. A pin is a small file of the mesh. To accept a refused card, delete the file.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Self

from trunkline.a2a_wire.json_values import Json
from trunkline.core.json_types import JsonValue
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError
from trunkline.v1 import agent_card_pb2

_FOLDER: Final = "remote-cards"
# Members of a card that declare authentication, before and since v1.0.
_SECURITY_MEMBERS: Final = ("securitySchemes", "security", "securityRequirements")
# The names in the description of a drift.
_MAX_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class CardPin:
    """The pinned parts of a card."""

    url: str
    """The address of the agent in the settings."""
    interfaces: Sequence[str]
    security: str
    """The digest of the authentication that the card declares."""
    skills: Mapping[str, str]
    """The digest of each skill, by its id."""
    signed_by: str = ""
    """The id of the key that signed the card, or empty without a verifiable signature."""
    keys: Sequence[Json] = field(default=(), repr=False)
    """The public keys (JWK) of the agent's own key set that may sign later cards."""

    @classmethod
    def from_card(
        cls,
        url: str,
        value: Json,
        card: agent_card_pb2.AgentCard,
        *,
        signed_by: str = "",
        keys: Sequence[Json] = (),
    ) -> Self:
        """Return the pin of a card; `value` is its JSON."""
        skills = value.get("skills")
        return cls(
            url,
            sorted({_describe_interface(interface) for interface in card.supported_interfaces}),
            _digest({name: value.get(name) for name in _SECURITY_MEMBERS}),
            {
                str(skill["id"]): _digest(skill)
                for skill in skills or ()
                if isinstance(skill, dict) and "id" in skill
            },
            signed_by,
            list(keys),
        )

    def describe_drift(self, card: "CardPin") -> str:
        """Return the differences of a later card in words, or ""."""
        skill_changes = [
            skill
            for skill in self.skills.keys() & card.skills
            if self.skills[skill] != card.skills[skill]
        ]
        changes = [
            _describe_names("new interfaces", set(card.interfaces) - set(self.interfaces)),
            _describe_names("missing interfaces", set(self.interfaces) - set(card.interfaces)),
            "other authentication" if card.security != self.security else "",
            (
                f"signed by {card.signed_by or 'nobody'}, before by {self.signed_by or 'nobody'}"
                if card.signed_by != self.signed_by
                else ""
            ),
            _describe_names("new skills", card.skills.keys() - self.skills.keys()),
            _describe_names("missing skills", self.skills.keys() - card.skills.keys()),
            _describe_names("changed skills", skill_changes),
        ]
        return "; ".join(change for change in changes if change)


class CardPinFile:
    """The file of one remote agent's pin."""

    def __init__(self, files: SmallFiles, url: str) -> None:
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        self._files = files
        self._path = f"{_FOLDER}/{name}.json"
        self._url = url

    @property
    def place(self) -> str:
        """The place of the file, for people."""
        return self._files.locate(self._path)

    async def read(self) -> CardPin | None:
        """Return the pin, or None if there is none yet.

        Raises:
            ConfigurationError: the file is damaged, or others may read or change it.
            JournalUnavailableError: the database of the file can't be reached.
        """
        content = await self._files.read(self._path)
        if content is None:
            return None
        try:
            pin = CardPin(**json.loads(content))
        except (ValueError, TypeError) as error:
            problem = "is no pin of a card; delete it to accept the agent's present card"
            raise ConfigurationError(self.place, problem) from error
        return pin if pin.url == self._url else None

    async def write(self, pin: CardPin) -> None:
        """Replace the pin.

        Raises:
            ConfigurationError: the file can't be written.
            JournalUnavailableError: the database of the file can't be reached.
        """
        await self._files.write(self._path, json.dumps(asdict(pin), indent=1).encode())


def _describe_interface(interface: agent_card_pb2.AgentInterface) -> str:
    parts = (interface.protocol_binding, interface.protocol_version, interface.url)
    return " ".join(parts) + (f" tenant {interface.tenant}" if interface.tenant else "")


def _describe_names(what: str, names: "set[str] | list[str]") -> str:
    if not names:
        return ""
    shown = ", ".join(name[:200] for name in sorted(names)[:_MAX_NAMES])
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{what}: {shown}{rest}"


def _digest(value: JsonValue) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
